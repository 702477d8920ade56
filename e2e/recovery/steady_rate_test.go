package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/e2e/require"
	"flightline/shared/bus"
	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/retry"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/shared/worker"
)

const (
	// backupRate is how many jobs come in a second.
	backupRate = 200
	// backupHead is how long they have come when the backup begins; a minute where
	// the environment asks for the long run, whose figures are in docs/operating.md.
	backupHead, longHead, longRun = 4 * time.Second, time.Minute, "backup-minute"
)

// Jobs come at a steady rate, some wait, some run, some are done, when all of it
// is copied. Restored from one node to a cluster of three, or the other way
// round, each that was accepted before the backup began is there and is done.
func TestABackupAtASteadyRateMovesFromANodeToACluster(t *testing.T) {
	t.Parallel()
	moveAtRate(t, oneNode, "1", threeNodes, "3")
}

func TestABackupAtASteadyRateMovesFromAClusterToANode(t *testing.T) {
	t.Parallel()
	moveAtRate(t, threeNodes, "3", oneNode, "1")
}

func oneNode(t *testing.T) bus.Config    { t.Helper(); return testenv.NewServer(t).Config() }
func threeNodes(t *testing.T) bus.Config { t.Helper(); return testenv.NewCluster(t).Config() }

// moveAtRate backs a Flightline up under load, and restores it elsewhere.
func moveAtRate(t *testing.T, from func(*testing.T) bus.Config, fromReplicas string, to func(*testing.T) bus.Config, toReplicas string) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	dir := filepath.Join(t.TempDir(), "backup")
	before := backUpAtRate(t, from(t), fromReplicas, dir)
	restored := newHaven(t, to(t), toReplicas)
	began := time.Now()
	restored.OK("restore", dir, "--replicas", toReplicas)
	t.Logf("restored in %v", time.Since(began).Round(10*time.Millisecond))
	restored.serve()
	restored.work(16, 0)
	restored.audit(before)
	if out := restored.OK("doctor", "--replicas", toReplicas); strings.Contains(out, "fail") || strings.Contains(out, "warn  stream") {
		t.Errorf("got\n%s\nwant no fail and streams with %s replicas", out, toReplicas)
	}
}

// haven is a Flightline on some NATS.
type haven struct {
	*program.Env
	bus    bus.Config
	client *client.Client
}

func newHaven(t *testing.T, cfg bus.Config, replicas string) *haven {
	t.Helper()
	h := &haven{Env: program.New(t), bus: cfg}
	h.Environ = append(h.Environ, "NATS_URL="+cfg.URL, "FLIGHTLINE_NATS_USER="+cfg.User, "FLIGHTLINE_NATS_PASSWORD="+cfg.Password,
		"FLIGHTLINE_BOOTSTRAP_KEY="+program.AdminKey, "FLIGHTLINE_API_KEY="+program.AdminKey, "FLIGHTLINE_REPLICAS="+replicas, "FLIGHTLINE_LIMITS=off")
	return h
}

func (h *haven) serve() {
	h.T.Helper()
	url := h.Start("serve", "all").Line(program.Ready)
	h.Environ = append(h.Environ, "FLIGHTLINE_URL="+url)
	var err error
	if h.client, err = client.New(url, program.AdminKey); err != nil {
		h.T.Fatal(err)
	}
}

// work runs a worker whose jobs take so long; stop ends it.
func (h *haven) work(slots int, takes time.Duration) (stop func()) {
	h.T.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.T.Context()))
	up, ended := make(chan struct{}), make(chan error, 1)
	go func() { // ends with ctx; waited for at the end of the test
		ended <- worker.Run(ctx, worker.Config{
			Endpoint: "work", NATSURL: h.bus.URL, User: h.bus.User, Password: h.bus.Password,
			Concurrency: slots, Grace: -1, OnReady: func() { close(up) },
		}, func(ctx context.Context, j *worker.Job) (any, error) {
			select {
			case <-time.After(takes):
			case <-ctx.Done():
			}
			return j.Input, ctx.Err()
		})
	}()
	select {
	case <-up:
	case err := <-ended:
		h.T.Fatalf("worker: %v", err)
	case <-time.After(program.Soon):
		h.T.Fatal("no worker")
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.T.Errorf("worker: %v", err)
		}
	})
	h.T.Cleanup(stop)
	return stop
}

// backUpAtRate returns the jobs that were accepted before the backup began.
func backUpAtRate(t *testing.T, cfg bus.Config, replicas, dir string) []job.ID {
	t.Helper()
	h := newHaven(t, cfg, replicas)
	h.serve()
	h.OK("endpoint", "create", "work", "--lease", "10000ms") // those that run now are taken again after that
	head := backupHead
	if require.Requested(longRun) {
		head = longHead
	}
	stop := h.work(4, 25*time.Millisecond) // fewer than come: some wait
	r := pace(t, h.client)
	<-time.After(head) // of the load that is tested
	before, began := r.ids(), time.Now()
	out := h.OK("backup", dir)
	took := time.Since(began)
	r.stop()
	stop()
	var size int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if info, errInfo := d.Info(); err == nil && errInfo == nil && !d.IsDir() {
			size += info.Size()
		}
		return err
	})
	t.Logf("%s", strings.TrimSpace(out))
	t.Logf("%d jobs before it, %d in all; it took %v and %.1f MB; accepted before it p50 %v p99 %v, while it ran p50 %v p99 %v",
		len(before), len(r.ids()), took.Round(10*time.Millisecond), float64(size)/1e6,
		r.quantile(0.5, r.began, began), r.quantile(0.99, r.began, began), r.quantile(0.5, began, began.Add(took)), r.quantile(0.99, began, began.Add(took)))
	if want := int(head.Seconds() * backupRate / 2); len(before) < want {
		t.Errorf("got %d jobs before the backup, want %d or more", len(before), want)
	}
	return before
}

// audit waits for the end of each job.
func (h *haven) audit(ids []job.ID) {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(h.T.Context(), 3*program.Soon)
	defer cancel()
	began := time.Now()
	again := 0
	for _, id := range ids {
		j, err := h.client.Wait(ctx, "work", id)
		if err != nil {
			h.T.Fatalf("job %s: %v", id, err)
		}
		if j.Status != job.Completed || len(j.Output) == 0 {
			h.T.Errorf("job %s: got %s %s, want it COMPLETED with an output", id, j.Status, j.Error)
		}
		if j.Retries > 0 {
			again++
		}
	}
	h.T.Logf("%d jobs are done %v after the start, %d of them were taken a second time", len(ids), time.Since(began).Round(100*time.Millisecond), again)
}

// paced is a steady load. A job's time counts from when it was due.
type paced struct {
	began time.Time
	stop  func()
	mu    sync.Mutex
	done  []dueJob
}

type dueJob struct {
	id   job.ID
	due  time.Time
	took time.Duration
}

// pace submits jobs to the endpoint work, whatever becomes of those before.
func pace(t *testing.T, c *client.Client) *paced {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &paced{began: time.Now()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			due := p.began.Add(time.Duration(n) * time.Second / backupRate)
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done():
				return
			}
			wg.Go(func() {
				j, err := submit(context.WithoutCancel(ctx), c, client.Request{Input: map[string]string{"text": fmt.Sprint("job ", n, strings.Repeat(" and its input", 20))}})
				if err != nil {
					t.Errorf("submit: %v", err)
					return
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				p.done = append(p.done, dueJob{j.ID, due, time.Since(due)})
			})
		}
	})
	p.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(p.stop)
	return p
}

// submit tries again as callers do: a machine that is slower than the rate refuses some.
func submit(ctx context.Context, c *client.Client, r client.Request) (j *client.Job, err error) {
	err = retry.Do(ctx, retry.Every(time.Second), func(err error) bool {
		refused, answered := errors.AsType[*client.Error](err)
		return answered && refused.Temporary()
	}, func() error {
		j, err = c.Run(ctx, "work", r)
		return err
	})
	return j, err
}

func (p *paced) ids() []job.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]job.ID, 0, len(p.done))
	for _, a := range p.done {
		all = append(all, a.id)
	}
	return all
}

// quantile is how long jobs took that were due in between, in the order of that.
func (p *paced) quantile(q float64, from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var took []time.Duration
	for _, a := range p.done {
		if !a.due.Before(from) && a.due.Before(to) {
			took = append(took, a.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.SortFunc(took, cmp.Compare)
	return took[int(q*float64(len(took)-1))].Round(100 * time.Microsecond)
}
