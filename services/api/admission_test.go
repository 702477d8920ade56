package api

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// While as many submissions are with the bus as may be, another one is refused soon
// and may be tried again: it is not left to wait for the bus.
func TestASubmissionWithoutATurnIsA503(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.serve(Config{MaxSubmitting: 1}, Deps{Queue: s.queue, Registry: s.registry, Events: s.at.Events(t)})
	held, err := takeTurn(t.Context(), s.service.turns)
	if err != nil {
		t.Fatal(err)
	}
	keyed := s.request("POST", "/ep/run", strings.NewReader(`{"input":{}}`))
	keyed.Header.Set("Idempotency-Key", "order-1")
	for name, got := range map[string]answer{
		"run": s.do("POST", "/ep/run", `{"input":{}}`), "runsync": s.do("POST", "/ep/runsync", `{"input":{}}`), "with a key": s.send(keyed),
		"openai": s.sendLoosely(s.request("POST", "/ep/openai/v1/completions", strings.NewReader(`{"prompt":"x"}`))),
	} {
		if got.status != 503 || !strings.Contains(got.raw, "too many submissions are under way") || got.header.Get("Retry-After") == "" {
			t.Errorf("%s: got %d %s with %v, want 503 with the reason and Retry-After", name, got.status, got.raw, got.header)
		}
	}
	held.end()
	held.end() // once more gives no second turn
	if got := s.do("POST", "/ep/run", `{"input":{}}`); got.status != 200 {
		t.Errorf("with the turn: got %d %s, want 200", got.status, got.raw)
	}
}

// A client that waits for its job's end has no turn, and neither has a client that
// repeats a submission and waits.
func TestAClientThatWaitsHasNoTurn(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.serve(Config{MaxSubmitting: 1}, Deps{Queue: s.queue, Registry: s.registry, Events: s.at.Events(t)})
	var clients sync.WaitGroup
	defer clients.Wait()
	wait := func() {
		clients.Go(func() {
			if got := s.keyed("/ep/runsync?wait=300000", "order-2", `{"input":{}}`); got.body["status"] != "COMPLETED" {
				t.Errorf("got %d %s, want the job's end", got.status, got.raw)
			}
		})
	}
	wait()
	lease := s.take()
	wait() // the same job
	if got := s.keyed("/ep/run", "order-3", `{"input":{}}`); got.status != 200 {
		t.Errorf("beside clients that wait: got %d %s, want 200", got.status, got.raw)
	}
	if _, err := lease.Complete(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Error(err)
	}
}
