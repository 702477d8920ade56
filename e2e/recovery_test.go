package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"flightline/shared/bus/bustest"
	"flightline/shared/client"
	"flightline/shared/job"
)

const adminKey = "recovery-admin-key"

// plant is a NATS that can go away, an API process beside it and a client.
type plant struct {
	*site
	nats   *bustest.Bus
	client *client.Client
	log    string // each run of the handler appends "<worker> <what>" to this file
}

// leaseMs is the shortest lease that the API allows.
const leaseMs = 10_000

func newPlant(t *testing.T) *plant {
	t.Helper()
	s := newSite(t)
	p := &plant{site: s, nats: bustest.New(t), log: filepath.Join(s.dir, "handler.log")}
	cfg := p.nats.Config()
	s.env = append(s.env, "NATS_URL="+cfg.URL, "FLIGHTLINE_NATS_USER="+cfg.User, "FLIGHTLINE_NATS_PASSWORD="+cfg.Password,
		"FLIGHTLINE_BOOTSTRAP_KEY="+adminKey, "FLIGHTLINE_API_KEY="+adminKey)
	url := s.start("serve", "all").line(ready)
	s.env = append(s.env, "FLIGHTLINE_URL="+url)
	var err error
	if p.client, err = client.New(url, adminKey); err != nil {
		t.Fatal(err)
	}
	s.ok("endpoint", "create", "work", "--lease", fmt.Sprintf("%dms", leaseMs))
	return p
}

// worker starts a worker whose handler says in the log that it runs, waits
// until the file release exists, and answers with the worker's name.
func (p *plant) worker(name, release string) *daemon {
	p.t.Helper()
	script := fmt.Sprintf(`echo "%s starts" >>%s; trap 'echo "%s is told to stop" >>%s; exit 1' TERM; while [ ! -e %s ]; do sleep 0.05; done; echo '"%s"'`,
		name, p.log, name, p.log, release, name)
	d := p.start("worker", "work", "--id", name, "--grace", "100ms", "--", "sh", "-c", script)
	d.line(workerReady)
	return d
}

func (p *plant) release(name string) string { return filepath.Join(p.dir, name) }

func (p *plant) open(path string) {
	p.t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *plant) logged() string {
	text, err := os.ReadFile(p.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return string(text)
}

// until waits for a line of the handlers' log and returns how long it took.
func (p *plant) until(line string) time.Duration {
	p.t.Helper()
	began := time.Now()
	p.eventually("the log says "+line, func() bool { return strings.Contains(p.logged(), line+"\n") })
	return time.Since(began)
}

func (s *site) eventually(what string, ok func() bool) {
	s.t.Helper()
	late := time.NewTimer(soon)
	defer late.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			s.t.Fatalf("never within %v: %s", soon, what)
		}
	}
}

func (p *plant) ended(id string) client.Job {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), soon)
	defer cancel()
	j, err := p.client.Wait(ctx, "work", job.ID(id))
	if err != nil {
		p.t.Fatal(err)
	}
	return *j
}

// inTime tries up to three times to see something happen within what is
// promised: a busy machine may be late once, a broken promise always.
func inTime(t *testing.T, promise time.Duration, try func(n string) (took time.Duration)) {
	t.Helper()
	const tries = 3
	for n := range tries {
		took := try(strconv.Itoa(n + 1))
		if took <= promise {
			return
		}
		t.Logf("try %d took %v", n+1, took)
	}
	t.Errorf("it took more than %v each time", promise)
}

func TestKilledWorkersJobRunsElsewhereWithinItsLeaseAndASecond(t *testing.T) {
	p := newPlant(t)
	inTime(t, leaseMs*time.Millisecond+time.Second, func(n string) time.Duration {
		release := p.release("go" + n)
		first := p.worker("first"+n, release)
		id := submit(p.site, "work")
		p.until("first" + n + " starts")
		second := p.worker("second"+n, release)
		// The second must have been served for a lease to be sure that the first
		// is lost; a worker that has been up for a while is.
		up := time.NewTimer(leaseMs * time.Millisecond)
		<-up.C
		first.kill()
		took := p.until("second" + n + " starts")
		p.open(release)
		if j := p.ended(id); j.Status != job.Completed || j.Retries != 1 || j.WorkerID != "second"+n {
			t.Errorf("got %+v, want COMPLETED by second%s with 1 retry", j, n)
		}
		second.stop(stopWithin)
		return took
	})
}

func TestStoppedWorkersJobRunsElsewhereWithinASecondUncounted(t *testing.T) {
	p := newPlant(t)
	inTime(t, time.Second+100*time.Millisecond, func(n string) time.Duration { // its grace is 100 ms
		release := p.release("go" + n)
		first := p.worker("first"+n, release)
		id := submit(p.site, "work")
		p.until("first" + n + " starts")
		second := p.worker("second"+n, release)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			first.stop(stopWithin)
		}()
		took := p.until("second" + n + " starts")
		<-stopped
		p.open(release)
		if j := p.ended(id); j.Status != job.Completed || j.WorkerID != "second"+n {
			t.Errorf("got %+v, want COMPLETED by second%s", j, n)
		}
		second.stop(stopWithin)
		return took
	})
}

func TestCancelReachesARunningHandlerWithinASecond(t *testing.T) {
	p := newPlant(t)
	inTime(t, time.Second, func(n string) time.Duration {
		worker := p.worker("first"+n, p.release("never"))
		id := submit(p.site, "work")
		p.until("first" + n + " starts")
		if _, err := p.client.Cancel(t.Context(), "work", job.ID(id)); err != nil {
			t.Fatal(err)
		}
		took := p.until("first" + n + " is told to stop")
		if j := p.ended(id); j.Status != job.Cancelled {
			t.Errorf("got %+v, want CANCELLED", j)
		}
		worker.stop(stopWithin)
		return took
	})
}

func TestNATSAwayForTenSecondsIsA503AndThenAllResumes(t *testing.T) {
	p := newPlant(t)
	release := p.release("go")
	p.worker("first", release)
	running := submit(p.site, "work")
	p.until("first starts")
	waiting := submit(p.site, "work")

	p.nats.Stop()
	away := time.NewTimer(10 * time.Second)
	for refused := 0; ; refused++ {
		began := time.Now()
		_, err := p.client.Run(t.Context(), "work", client.Request{Input: map[string]int{"n": 1}})
		took := time.Since(began)
		problem, ok := errors.AsType[*client.Error](err)
		if !ok || problem.Status != http.StatusServiceUnavailable || problem.RetryAfter <= 0 || took > 5*time.Second {
			t.Fatalf("got %v after %v, want 503 with Retry-After within 5 s", err, took)
		}
		select {
		case <-away.C:
		default:
			continue
		}
		if refused == 0 {
			t.Fatal("no submission met the outage")
		}
		break
	}
	p.nats.Start()
	p.open(release)
	for _, id := range []string{running, waiting} {
		if j := p.ended(id); j.Status != job.Completed || j.Retries != 0 {
			t.Errorf("got %+v, want COMPLETED without a retry", j)
		}
	}
	after := submit(p.site, "work")
	if j := p.ended(after); j.Status != job.Completed {
		t.Errorf("after the outage: got %+v, want COMPLETED", j)
	}
	if n := strings.Count(p.logged(), "starts\n"); n != 3 {
		t.Errorf("the handler ran %d times for 3 jobs:\n%s", n, p.logged())
	}
}
