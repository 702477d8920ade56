package gateway

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// toStop polls once for the jobs that the worker should stop.
func (w *worker) toStop() []string {
	w.s.t.Helper()
	a := w.send("GET", "/job-stop/%w?gpu=any", nil)
	var got struct {
		JobsToStop []string `json:"jobsToStop"`
	}
	if a.status == 204 {
		return nil
	}
	if a.status != 200 || json.Unmarshal([]byte(a.raw), &got) != nil {
		w.s.t.Errorf("job-stop: got %d %s", a.status, a.raw)
	}
	return got.JobsToStop
}

func TestATakeThatNoPingConfirmsIsHandedOutAgain(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{Confirm: 500 * time.Millisecond})
	silent, w := s.worker("w1", g), s.worker("w2", g)
	id := s.submit()
	silent.take() // and is never heard of again
	if got := w.take(); got.ID != id {
		t.Fatalf("got %s, want %s", got.ID, id)
	}
	w.done(id, `{"output":1}`)
	if j := s.is(id, job.Completed, "1", ""); j.Lost != 0 || j.Retries() != 1 {
		t.Errorf("got %d lost, %d retries, want none and 1", j.Lost, j.Retries())
	}
	silent.done(id, `{"output":"late"}`)
	s.is(id, job.Completed, "1", "")
}

// A worker cannot read what has a job in it that it cannot read, as JSON that is too deep
// for it. That job takes no other one with it more than once.
func TestATakeThatNoPingConfirmsIsHandedOutAlone(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{Confirm: time.Second, Hold: patience}))
	batch := func() (got []taken) {
		a := w.send("GET", "/job-take-batch/%w?gpu=any&batch_size=8", nil)
		if a.status != 200 || json.Unmarshal([]byte(a.raw), &got) != nil {
			t.Fatalf("got %d %s, want jobs", a.status, a.raw)
		}
		return got
	}
	unread := map[string]bool{}
	for range 3 {
		unread[s.submit()] = true
	}
	for left := 3; left > 0; {
		left -= len(batch())
	}
	for len(unread) > 0 {
		got := batch()
		if len(got) != 1 || !unread[got[0].ID] {
			t.Fatalf("got %v, want one of %v alone", got, unread)
		}
		delete(unread, got[0].ID)
		w.done(got[0].ID, `{"output":1}`)
		s.is(got[0].ID, job.Completed, "1", "")
	}
}

// A worker that dies of a job before it can say that it has it is lost too.
func TestUnconfirmedTakesAreNotFreeForEver(t *testing.T) {
	s := newEnv(t, func(e *endpoint.Endpoint) { e.MaxLost, e.Lease = 1, endpoint.MinLease })
	w := s.worker("w1", s.gateway(Config{Confirm: 200 * time.Millisecond}))
	id := s.submit()
	for range 3 {
		if got := w.take(); got.ID != id {
			t.Fatalf("got %s, want %s", got.ID, id)
		}
	}
	deadline := time.Now().Add(2 * patience)
	for s.status(id).Status != job.Failed && time.Now().Before(deadline) {
		w.send("GET", "/job-take/%w?gpu=any", nil)
	}
	if j := s.status(id); j.Status != job.Failed || j.Lost != 1 || j.Run != 3 {
		t.Errorf("got %s after %d runs, %d lost, want FAILED after 3, 1 lost", j.Status, j.Run, j.Lost)
	}
}

func TestOnePingConfirmsATake(t *testing.T) {
	t.Parallel()
	for name, sign := range map[string]func(w *worker, id string){
		"ping":     func(w *worker, id string) { w.ping("x", id) },
		"chunk":    func(w *worker, id string) { w.emit(id, `{"output":1}`); w.ping(id) },
		"progress": func(w *worker, id string) { w.done(id, `{"status":"IN_PROGRESS","output":1}`); w.ping(id) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			g := s.gateway(Config{Confirm: 3 * time.Second, Hold: 4 * time.Second})
			w, other := s.worker("w1", g), s.worker("w2", g)
			id := s.submit()
			w.take()
			sign(w, id)
			if a := other.send("GET", "/job-take/%w?gpu=any", nil); a.status != 204 {
				t.Errorf("got %d %s, want nothing", a.status, a.raw)
			}
			w.done(id, `{"output":1}`)
			s.is(id, job.Completed, "1", "")
		})
	}
}

func TestASilentWorkerLosesItsJobAfterTheLease(t *testing.T) {
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = endpoint.MinLease })
	g := s.gateway(Config{Hold: 2 * time.Second})
	silent, w := s.worker("w1", g), s.worker("w2", g)
	id := s.submit()
	silent.take()
	silent.ping(id)
	began := time.Now()
	if got := w.take(); got.ID != id || time.Since(began) < 9*time.Second {
		t.Errorf("got %s after %s, want %s after the lease", got.ID, time.Since(began), id)
	}
	silent.ping(id)
	if got := silent.toStop(); len(got) != 1 || got[0] != id {
		t.Errorf("to stop: got %v, want %s", got, id)
	}
	w.done(id, `{"output":1}`)
	if j := s.is(id, job.Completed, "1", ""); j.Lost != 1 || j.Worker != "w2" {
		t.Errorf("got %d lost, worker %q, want 1 and w2", j.Lost, j.Worker)
	}
}

func TestACancelReachesTheWorkerWithinASecond(t *testing.T) {
	s := newSiteAlone(t)
	one, two := s.gateway(Config{Hold: patience}), s.gateway(Config{Hold: patience})
	w := s.worker("w1", one)
	id := s.submit()
	w.take()
	w.ping(id)
	poll := make(chan []string, 1)
	stopping := &worker{s: s, id: "w1", token: w.token, gates: []*instance{two}}
	go func() { poll <- stopping.toStop() }()
	testenv.Eventually(t, "the poll waits", func() bool {
		two.service.stopSignals.mu.Lock()
		defer two.service.stopSignals.mu.Unlock()
		return len(two.service.stopSignals.waiting) > 0
	})
	began := time.Now()
	_, err := s.queue.Cancel(t.Context(), s.endpoint, job.ID(id))
	must(t, err)
	got := <-poll
	if diff := cmp.Diff([]string{id}, got); diff != "" || time.Since(began) > patience/2 {
		t.Errorf("after %s (-want +got):\n%s", time.Since(began), diff)
	}
	if got := w.toStopSoon(); len(got) > 1 {
		t.Errorf("to stop: got %v", got)
	}
}

// toStopSoon is toStop of a gateway that may have nothing to say.
func (w *worker) toStopSoon() []string {
	ids, _ := w.gates[0].service.stopSignals.take("ep", w.id)
	var texts []string
	for _, id := range ids {
		texts = append(texts, string(id))
	}
	return texts
}

// A job that was cancelled, retried and taken again by the same worker goes on.
func TestAWorkerIsNotToldToStopWhatItHasAgain(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{})
	w := s.worker("w1", g)
	id := s.submit()
	w.take()
	w.done(id, `{"error":"no"}`)
	_, err := s.queue.Retry(t.Context(), s.endpoint, job.ID(id), "")
	must(t, err)
	w.take()
	g.service.stopSignals.add("ep", "w1", job.ID(id))
	if got := w.toStop(); len(got) != 0 {
		t.Errorf("to stop: got %v, want nothing", got)
	}
	w.done(id, `{"output":1}`)
	s.is(id, job.Completed, "1", "")
}

// Who holds a job is not known while NATS is away.
func TestAWorkerIsNotToldToStopAJobInAnOutage(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{Hold: time.Second})
	w := s.worker("w1", g)
	id := s.submit()
	w.take()
	w.ping(id)
	g.service.stopSignals.add("ep", "w1", job.ID(id)) // of a run before a cancel and a retry
	s.bus.Stop()
	got := w.send("GET", "/job-stop/%w?gpu=any", nil)
	s.bus.Start()
	if got.status != 204 && got.status != 503 { // 503: the server took so long to stop that who asks is not known either
		t.Errorf("to stop: got %d %s, want nothing", got.status, got.raw)
	}
	s.is(id, job.InProgress, "", "")
}

func TestATimeoutIsTheServersAndReachesTheWorker(t *testing.T) {
	s := newEnv(t)
	testenv.Background(t, func(ctx context.Context) error { return s.queue.Deadlines(ctx, 1) })
	w := s.worker("w1", s.gateway(Config{Hold: patience}))
	id := s.submit(func(r *job.Request) { r.Policy.ExecutionTimeout = 5 * time.Second })
	w.take()
	w.ping(id)
	if got := w.toStop(); len(got) != 1 || got[0] != id {
		t.Errorf("to stop: got %v, want %s", got, id)
	}
	s.is(id, job.TimedOut, "", job.ErrTextTimedOut)
	w.done(id, `{"output":"late"}`)
	s.is(id, job.TimedOut, "", job.ErrTextTimedOut)
}

func TestPingsTellHowTheWorkerDoes(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	state := func(want string, running ...string) {
		t.Helper()
		testenv.Eventually(t, "the worker is "+want, func() bool {
			all, err := s.registry.Workers.List(t.Context(), "ep")
			must(t, err)
			return len(all) == 1 && all[0].ID == "w1" && all[0].State == want && cmp.Equal(all[0].Running, running)
		})
	}
	w.ping()
	state(registry.WorkerIdle)
	id := s.submit()
	w.take()
	w.ping(id)
	state(registry.WorkerRunning, id)
	w.done(id, `{"output":1}`)
	w.ping(id) // it does not know yet that it is done
	state(registry.WorkerIdle)
	id = s.submit()
	w.take()
	_, err := s.queue.Cancel(t.Context(), s.endpoint, job.ID(id))
	must(t, err)
	w.ping(id) // its handler goes on: it takes no other job
	state(registry.WorkerRunning)
	w.ping()
	state(registry.WorkerIdle)
	w.ok("GET", "/ping/%w?gpu=any&status=unhealthy&check=gpu&reason=none&runpod_version=1.12.0", "")
	state(registry.WorkerUnhealthy)
}

// The version is kept in each heartbeat, in the pod's record and in answers.
func TestATextOfAPingIsCut(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	w.ok("GET", "/ping/%w?gpu=any&runpod_version="+strings.Repeat("%C3%A4", maxPingText), "")
	testenv.Eventually(t, "the worker is registered", func() bool {
		return s.registry.Workers.Last("ep", "w1").Worker.ID == "w1"
	})
	want := strings.Repeat("ä", maxPingText/2)
	if got := s.registry.Workers.Last("ep", "w1").Worker.Host.Version; got != want {
		t.Errorf("got %d bytes, want %d", len(got), len(want))
	}
	if got := s.pod("w1").Machine.Version; got != want {
		t.Errorf("the pod: got %d bytes, want %d", len(got), len(want))
	}
}
