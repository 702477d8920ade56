package recovery

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"flightline/e2e/require"
	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv/program"
)

// smallDisk mounts a file system of this size, in a folder of its own.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("flightline-test", dir, "tmpfs", 0, "size="+size); err != nil {
		require.Skip(t, "mount", "a small file system cannot be mounted: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all space that there is, and returns what gives it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 4<<10)
	for err == nil {
		_, err = file.Write(chunk)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want a full disk", err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// readiness is what /readyz answers.
func readiness(t *testing.T, url string) (status int, storage string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var view struct{ Checks map[string]string }
	program.Decode(t, string(body), &view)
	return res.StatusCode, view.Checks["storage"]
}

// smallDev is a dev whose data is on a small disk, and a worker of the endpoint
// slow, whose jobs run until the file release exists.
type smallDev struct {
	*program.Env
	dev                *program.Process
	client             *client.Client
	url, disk, release string
}

func devOn(t *testing.T, size string, args ...string) *smallDev {
	t.Helper()
	s := &smallDev{Env: program.New(t), disk: smallDisk(t, size)}
	s.Environ = append(s.Environ, "FLIGHTLINE_DATA="+filepath.Join(s.disk, "data"))
	s.dev = s.Start(append([]string{"dev"}, args...)...)
	s.url = s.dev.Line(program.Ready)
	var found struct{ APIKey string }
	program.Decode(t, s.OK("env", "-o", "json"), &found)
	var err error
	if s.client, err = client.New(s.url, found.APIKey); err != nil {
		t.Fatal(err)
	}
	s.OK("endpoint", "create", "slow")
	s.release = filepath.Join(s.Dir, "release")
	s.Start("worker", "slow", "--", "sh", "-c", "while [ ! -e "+s.release+" ]; do sleep 0.1; done; echo '\"held\"'").Line(program.WorkerReady)
	return s
}

// submitters submit jobs without end, each of 4 KB, and keep those accepted.
type submitters struct {
	mu       sync.Mutex
	accepted []job.ID
	refused  atomic.Int64
	stop     context.CancelFunc
	done     sync.WaitGroup
}

func submitSteadily(t *testing.T, c *client.Client, endpoint string) *submitters {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &submitters{stop: stop}
	input := map[string]string{"text": strings.Repeat("x", 4<<10)}
	for range 4 {
		s.done.Go(func() {
			for ctx.Err() == nil {
				j, err := c.Run(ctx, endpoint, client.Request{Input: input})
				if err != nil {
					s.refused.Add(1)
					continue
				}
				s.mu.Lock()
				s.accepted = append(s.accepted, j.ID)
				s.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() { s.end() })
	return s
}

// end stops the submissions and returns the jobs that were accepted.
func (s *submitters) end() []job.ID {
	s.stop()
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// A full disk makes the process unready and the doctor fail. Once there is
// space, dev restarts its NATS by itself: no accepted job is lost, those that run
// go on, and new ones are accepted.
func TestDevServesAgainAfterAFullDisk(t *testing.T) {
	t.Parallel()
	servesAgain(t, "always")
}

func TestDevWithGroupedFsyncsServesAgainAfterAFullDisk(t *testing.T) {
	t.Parallel()
	servesAgain(t, "group")
}

func servesAgain(t *testing.T, sync string) {
	t.Helper()
	s := devOn(t, "96m", "--sync", sync)
	c := s.client
	held := program.Submit(s.Env, "slow")
	s.Eventually("the held job runs", func() bool {
		j, err := c.Status(t.Context(), "slow", job.ID(held))
		return err == nil && j.Status == job.InProgress
	})
	load := submitSteadily(t, c, "echo")
	s.Eventually("jobs are accepted", func() bool { load.mu.Lock(); defer load.mu.Unlock(); return len(load.accepted) > 20 })

	free := fill(t, s.disk)
	began := time.Now()
	s.Eventually("the process is unready, with its reason", func() bool {
		status, storage := readiness(t, s.url)
		return status == http.StatusServiceUnavailable && strings.Contains(storage, "refuse") && strings.Contains(storage, "(no space left on device)")
	})
	t.Logf("unready after %v", time.Since(began))
	s.Eventually("submissions are refused", func() bool { return load.refused.Load() > 0 })
	if code, out, errs := s.Run("doctor"); code != 1 || !strings.Contains(out, "refuses all writes since one failed") {
		t.Errorf("the doctor: got code %d, want 1 and the streams that refuse writes\n%s%s", code, out, errs)
	}
	if !strings.Contains(s.dev.Said(), "stream refuses writes until NATS is restarted") {
		t.Errorf("got no line of the log that says it:\n%s", s.dev.Said())
	}
	free()
	began = time.Now()
	s.Eventually("the process is ready", func() bool { status, _ := readiness(t, s.url); return status == http.StatusOK })
	t.Logf("ready after %v", time.Since(began))
	if !strings.Contains(s.dev.Said(), "embedded NATS server restarted") {
		t.Errorf("got no line of the log that says what was done:\n%s", s.dev.Said())
	}
	s.OK("runsync", "echo", `{"after":"the full disk"}`)
	if err := os.WriteFile(s.release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	completed(t, c, "slow", job.ID(held))
	accepted := load.end()
	t.Logf("%d accepted, %d refused", len(accepted), load.refused.Load())
	for _, id := range accepted {
		completed(t, c, "echo", id)
	}
	if code, out, errs := s.Run("doctor"); code != 0 {
		t.Errorf("the doctor afterwards: got code %d, want 0\n%s%s", code, out, errs)
	}
}

// Before the disk is full, new jobs are refused; those that were accepted run,
// end and are cancelled on what was kept for them.
func TestDevRefusesJobsBeforeTheDiskIsFull(t *testing.T) {
	t.Parallel()
	s := devOn(t, "320m") // of which 16 MB are kept
	c := s.client
	var jobs []job.ID
	for range 20 {
		jobs = append(jobs, job.ID(program.Submit(s.Env, "slow")))
	}
	free := fillUpTo(t, s.disk, 12<<20)
	var refused string
	s.Eventually("jobs are refused", func() bool {
		_, err := c.Run(t.Context(), "slow", client.Request{Input: map[string]int{"n": 1}})
		if err != nil {
			refused = err.Error()
		}
		return err != nil
	})
	if !strings.Contains(refused, "nearly full") || !strings.Contains(refused, "bytes are free, and") {
		t.Errorf("got %q, want what is exceeded, its value and bound", refused)
	}
	if status, _ := readiness(t, s.url); status != http.StatusOK {
		t.Errorf("got %d, want it ready: it answers all else", status)
	}
	s.OK("cancel", "slow", string(jobs[19]))
	if err := os.WriteFile(s.release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range jobs[:19] {
		completed(t, c, "slow", id)
	}
	free()
	s.Eventually("jobs are accepted again", func() bool {
		_, err := c.Run(t.Context(), "slow", client.Request{Input: map[string]int{"n": 1}})
		return err == nil
	})
}

// Jobs may take more than the three quarters of the disk by which a server of NATS
// bounds its store: beyond, it refuses what makes room too.
func TestJobsMayTakeMostOfTheDisk(t *testing.T) {
	t.Parallel()
	s := devOn(t, "64m") // of which 3.2 MB are kept
	s.OK("endpoint", "create", "waits")
	input := map[string]string{"text": strings.Repeat("x", 1<<20)}
	for n := range 50 {
		if _, err := s.client.Run(t.Context(), "waits", client.Request{Input: input}); err != nil {
			t.Fatalf("job %d of 1 MB: %v", n+1, err)
		}
	}
	s.OK("purge", "waits")
}

// fillUpTo takes all space but so many bytes, and returns what gives it back.
func fillUpTo(t *testing.T, dir string, left int64) (free func()) {
	t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "filler")
	size := int64(fs.Bavail)*fs.Bsize - left
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func completed(t *testing.T, c *client.Client, endpoint string, id job.ID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*program.Soon)
	defer cancel()
	j, err := c.Wait(ctx, endpoint, id)
	if err != nil || j.Status != job.Completed {
		t.Errorf("job %s of %s: got %+v, %v, want it completed", id, endpoint, j, err)
	}
}

// A file system without room for another file keeps what it has: dev does not start, where
// NATS would delete the streams that it cannot open.
func TestDevLosesNothingWhereNoFileCanBeMade(t *testing.T) {
	t.Parallel()
	s := devOn(t, "96m,nr_inodes=1000")
	s.OK("endpoint", "create", "waits")
	id := program.Submit(s.Env, "waits")
	s.dev.Kill()
	// A start removes the second names of blocks that a kill leaves behind, which may be
	// room enough: here it finds no room.
	retained, err := filepath.Glob(filepath.Join(s.disk, "data/jetstream/jetstream/*/streams/*/retained"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range retained {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	free := fillFiles(t, s.disk)
	again := s.Start("dev")
	for line := range again.Lines {
		if strings.HasPrefix(line, program.Ready) {
			t.Fatalf("it starts, want that it ends:\n%s", again.Said())
		}
	}
	if err := again.Cmd.Wait(); err == nil || !strings.Contains(again.Said(), "no space left on device") {
		t.Errorf("got %v, want an error that says why\n%s", err, again.Said())
	}
	free()
	s.Start("dev").Line(program.Ready)
	if got := s.OK("status", "waits", id); !strings.Contains(got, string(job.InQueue)) {
		t.Errorf("got %s, want the job IN_QUEUE", got)
	}
}

// Before no file can be made, new jobs are refused; those that were accepted end.
func TestDevRefusesJobsBeforeNoFileCanBeMade(t *testing.T) {
	t.Parallel()
	s := devOn(t, "96m,nr_inodes=1000") // of which 50 are kept
	held := program.Submit(s.Env, "slow")
	free := fillFiles(t, s.disk)
	for n := range 20 {
		if err := os.Remove(filepath.Join(s.disk, "files", strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
	}
	submit := func() error {
		_, err := s.client.Run(t.Context(), "slow", client.Request{Input: map[string]int{"n": 1}})
		return err
	}
	s.Eventually("jobs are refused", func() bool {
		err := submit()
		return err != nil && strings.Contains(err.Error(), "inodes are free, and 50 are kept")
	})
	if err := os.WriteFile(s.release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	completed(t, s.client, "slow", job.ID(held))
	free()
	s.Eventually("jobs are accepted again", func() bool { return submit() == nil })
}

// fillFiles makes files until the file system takes no more, and returns what removes them.
func fillFiles(t *testing.T, dir string) (free func()) {
	t.Helper()
	dir = filepath.Join(dir, "files")
	err := os.Mkdir(dir, 0o700)
	for n := 0; err == nil; n++ {
		err = os.WriteFile(filepath.Join(dir, strconv.Itoa(n)), nil, 0o600)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want that no file can be made", err)
	}
	return func() {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// A generator that never ends takes no space that the ends of other jobs need.
func TestChunksWithoutEndLeaveSpaceForOtherJobs(t *testing.T) {
	t.Parallel()
	s := devOn(t, "160m") // of which 8 MB are kept, 4 MB of them from chunks
	held := program.Submit(s.Env, "slow")
	s.OK("endpoint", "create", "endless")
	var vars map[string]string
	program.Decode(t, s.OK("worker", "env", "endless", "--worker", "w1", "--format", "json"), &vars)
	id := program.Submit(s.Env, "endless")
	post := func(method, path, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+"/v2/endless/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+vars["RUNPOD_AI_API_KEY"])
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = a.Body.Close(); a.StatusCode != http.StatusOK {
			t.Fatalf("%s: got %s", path, a.Status)
		}
	}
	post(http.MethodGet, "job-take/w1?gpu=x", "")
	chunk := `{"output":"` + strings.Repeat("x", 900<<10) + `"}`
	var j *client.Job
	for n := 0; n < 250 && (j == nil || j.Status == job.InProgress); n++ {
		post(http.MethodPost, "job-stream/w1/"+id+"?gpu=x", chunk)
		var err error
		if j, err = s.client.Status(t.Context(), "endless", job.ID(id)); err != nil {
			t.Fatal(err)
		}
	}
	if j.Status != job.Failed || !strings.HasPrefix(j.Error, "chunk_not_stored: the storage is nearly full: ") {
		t.Errorf("got %s %q, want FAILED since there is no space", j.Status, j.Error)
	}
	if err := os.WriteFile(s.release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	completed(t, s.client, "slow", job.ID(held))
}
