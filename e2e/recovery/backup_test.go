package recovery

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
)

// A backup that is taken under load and restored to an empty NATS has every
// job that was accepted before it began: those that were done can be read,
// those that waited or ran are run. What comes afterwards is run as well.
func TestABackupUnderLoadHasEveryJob(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	p := program.NewInstallation(t)
	p.Start("worker", "work", "--concurrency", "2", "--", "sh", "-c", "cat; sleep 0.02").Line(program.WorkerReady)
	load := newLoad(t, p.Client)
	p.Eventually("jobs are accepted", func() bool { return len(load.accepted()) >= 60 })
	large := client.Request{Input: map[string]string{"text": strings.Repeat("large ", 60_000)}}
	for range 3 {
		load.submit(t.Context(), large)
	}
	before := load.accepted()
	dir := filepath.Join(p.Dir, "backup")
	if out := p.OK("backup", dir); !strings.HasPrefix(out, "backup complete") {
		t.Errorf("got %q", out)
	}
	load.stop()
	t.Logf("%d jobs accepted before the backup, %d in all", len(before), len(load.accepted()))

	if code, _, errs := p.Run("restore", dir); code == 0 || !strings.Contains(errs, "not empty") {
		t.Errorf("restore over what there is: got code %d, %s", code, errs)
	}
	other := *p.Env
	cfg := testenv.NewServer(t).Config()
	other.Environ = append(append([]string{}, p.Environ...), "NATS_URL="+cfg.URL, "FLIGHTLINE_NATS_USER="+cfg.User, "FLIGHTLINE_NATS_PASSWORD="+cfg.Password)
	other.OK("restore", dir)
	url := other.Start("serve", "all").Line(program.Ready)
	other.Environ = append(other.Environ, "FLIGHTLINE_URL="+url)
	other.Start("worker", "work", "--concurrency", "8", "--", "sh", "-c", "cat").Line(program.WorkerReady)
	c, err := client.New(url, program.AdminKey)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*program.Soon)
	defer cancel()
	counts := map[job.Status]int{}
	for _, id := range before {
		j, err := c.Wait(ctx, "work", id)
		if err != nil {
			t.Fatalf("job %s: %v", id, err)
		}
		if counts[j.Status]++; j.Status != job.Completed || len(j.Output) == 0 {
			t.Errorf("job %s: got %s %s, want it COMPLETED with an output", id, j.Status, j.Error)
		}
	}
	if j, err := c.RunSync(ctx, "work", client.Request{Input: map[string]int{"n": 1}}, program.Soon); err != nil || j.Status != job.Completed {
		t.Errorf("after the restore: got %+v, %v, want it COMPLETED", j, err)
	}
	if out := other.OK("doctor"); strings.Contains(out, "fail") {
		t.Errorf("got\n%s\nwant no fail", out)
	}
}

// A backup that was changed on the way is refused by the command.
func TestTheCommandRefusesASpoiltBackup(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	s := program.New(t)
	s.Start("dev", "--no-demo").Line(program.Ready)
	dir := filepath.Join(s.Dir, "backup")
	s.OK("backup", dir) // of the running dev
	s.OK("doctor", "-o", "json")
	if err := os.Truncate(filepath.Join(dir, "EVENTS.snapshot"), 10); err != nil {
		t.Fatal(err)
	}
	cfg := testenv.NewServer(t).Config()
	code, _, errs := s.Run("restore", dir, "--nats-url", cfg.URL, "--nats-user", cfg.User, "--nats-password", cfg.Password)
	if code != 1 || !strings.Contains(errs, "EVENTS.snapshot was changed or cut off") {
		t.Errorf("got code %d, %s, want 1 and the file's name", code, errs)
	}
}

// load submits jobs, one after the other in each of some goroutines.
type load struct {
	c    *client.Client
	stop func()
	t    *testing.T

	mu  sync.Mutex
	ids []job.ID
}

func newLoad(t *testing.T, c *client.Client) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{c: c, t: t}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.submit(ctx, client.Request{Input: map[string]string{"n": fmt.Sprint(i, n)}})
				select {
				case <-time.After(40 * time.Millisecond): // below the limit of the endpoint
				case <-ctx.Done():
				}
			}
		})
	}
	l.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(l.stop)
	return l
}

// submit notes the job once it was accepted.
func (l *load) submit(ctx context.Context, r client.Request) {
	j, err := l.c.Run(ctx, "work", r)
	if err != nil {
		if ctx.Err() == nil {
			l.t.Errorf("submit: %v", err)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, j.ID)
}

func (l *load) accepted() []job.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]job.ID{}, l.ids...)
}
