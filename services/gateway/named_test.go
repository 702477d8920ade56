package gateway

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/testenv"
)

// failedWhileItRuns is a job that was retried after it FAILED for a chunk: the worker that
// posted the chunk still runs it, and says so.
func (w *worker) failedWhileItRuns() (id string) {
	w.s.t.Helper()
	id = w.s.submit()
	w.take()
	w.ping(id)
	w.emit(id, `{"output": {"x": "`+strings.Repeat("x", job.MaxChunk)+`"}}`)
	w.ping(id)
	if _, err := w.s.queue.Retry(w.s.t.Context(), w.s.endpoint, job.ID(id), ""); err != nil {
		w.s.t.Fatal(err)
	}
	return id
}

// The SDK posts a result with the job's id only. So the next attempt must not be with a
// worker that still runs the one before.
func TestTheResultOfAnEarlierAttemptEndsNoLaterOne(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	id := w.failedWhileItRuns()
	if a := w.send("GET", "/job-take/%w?gpu=any", nil); a.status != 204 {
		t.Errorf("take: got %d %s, want nothing while it runs the job", a.status, a.raw)
	}
	if a := w.send("GET", "/job-take-batch/%w?batch_size=2", nil); a.status != 204 {
		t.Errorf("batch: got %d %s, want nothing while it runs the job", a.status, a.raw)
	}
	w.done(id, `{"error":"of attempt 1"}`)
	s.is(id, job.InQueue, "", "")
	if got := w.take(); got.ID != id {
		t.Fatalf("got %s, want %s", got.ID, id)
	}
	w.done(id, `{"output":"of attempt 2"}`)
	w.done(id, `{"output":"late"}`)
	s.is(id, job.Completed, `"of attempt 2"`, "")
}

func TestAJobThatAWorkerStillRunsGoesToAnother(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{})
	w, other := s.worker("w1", g), s.worker("w2", g)
	id := w.failedWhileItRuns()
	if a := w.send("GET", "/job-take/%w?gpu=any", nil); a.status != 204 {
		t.Errorf("got %d %s, want nothing while it runs the job", a.status, a.raw)
	}
	if got := other.take(); got.ID != id {
		t.Fatalf("got %s, want %s", got.ID, id)
	}
	w.emit(id, `{"output":"of attempt 1"}`)
	w.done(id, `{"output":"of attempt 1"}`)
	other.done(id, `{"output":"of attempt 2"}`)
	s.is(id, job.Completed, `"of attempt 2"`, "")
}

// Pings keep their connection, so all of them may reach one instance.
func TestAnInstanceThatIsNotPingedGivesNoJobThatIsStillRun(t *testing.T) {
	s := newEnv(t)
	one, two := s.gateway(Config{}), s.gateway(Config{})
	w := s.worker("w1", one)
	id := w.failedWhileItRuns()
	testenv.Eventually(t, "the heartbeat is seen", func() bool {
		last := s.registry.Workers.Last("ep", "w1").Worker
		return len(last.Running) == 0 && slices.Equal(last.Stale, []string{id})
	})
	w.gates = []*instance{two}
	if a := w.send("GET", "/job-take/%w?gpu=any", nil); a.status != 204 {
		t.Errorf("got %d %s, want nothing while it runs the job", a.status, a.raw)
	}
	w.done(id, `{"output":"of attempt 1"}`)
	s.is(id, job.InQueue, "", "")
	w.gates = []*instance{one}
	w.ping()
	w.gates = []*instance{two}
	if got := w.take(); got.ID != id {
		t.Errorf("got %s, want %s", got.ID, id)
	}
}

// A worker that was started again under its id does not name what it ran before.
func TestAPingWithoutAJobSaysThatItsRunIsOver(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	id := w.failedWhileItRuns()
	w.ping()
	if got := w.take(); got.ID != id {
		t.Fatalf("got %s, want %s", got.ID, id)
	}
	w.ping(id)
	w.done(id, `{"output":1}`)
	s.is(id, job.Completed, "1", "")
}

// A result that is too large to be read says that the handler has ended, a chunk does not.
func TestAResultThatIsNotReadEndsTheRunToo(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{Hold: patience}))
	id := s.submit()
	w.take()
	w.ping(id)
	w.done(id, `{"output":"`+strings.Repeat("x", 32<<20)+`"}`)
	s.is(id, job.Failed, "", s.status(id).Error)
	_, err := s.queue.Retry(t.Context(), s.endpoint, job.ID(id), "")
	must(t, err)
	if got := w.take(); got.ID != id {
		t.Fatalf("got %s, want %s", got.ID, id)
	}
	w.done(id, `{"output":1}`)
	s.is(id, job.Completed, "1", "")
}

func TestWhatAPingNamesHoldsForALease(t *testing.T) {
	t.Parallel()
	n, now := newNamedJobs(), time.Unix(1000, 0)
	n.set("ep.w1", []job.ID{"a", "b"}, now, 20*time.Second)
	n.remove("ep.w1", "b")
	n.remove("ep.w2", "a")
	runs := func(key string, id job.ID, at time.Time) bool {
		runs, _ := n.has(key, id, at)
		return runs
	}
	got := map[string]bool{
		"a": runs("ep.w1", "a", now.Add(20*time.Second-1)), "late": runs("ep.w1", "a", now.Add(20*time.Second)),
		"b": runs("ep.w1", "b", now), "other": runs("ep.w2", "a", now),
	}
	want := `{"a":true,"b":false,"late":false,"other":false}`
	if text, err := json.Marshal(got); err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
	n.set("ep.w3", nil, now.Add(time.Hour), time.Minute)
	if len(n.of) != 1 {
		t.Errorf("got %v, want that what has expired is gone", n.of)
	}
}
