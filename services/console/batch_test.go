package console

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

const anAPIKey = "fl_of_somebody"

func newActions(t *testing.T) *registry.Actions {
	t.Helper()
	s := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), s.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	actions, err := registry.OpenActions(t.Context(), s.JS)
	if err != nil {
		t.Fatal(err)
	}
	return actions
}

// acted notes who acted on which job, and blocks from the after-th call on until ctx ends.
type acted struct {
	after   int
	reached chan struct{} // closed by the call that blocks first

	mu    sync.Mutex
	calls map[job.ID]int
	again map[job.ID]bool
	n     int
}

func newActed(after int) *acted {
	return &acted{after: after, reached: make(chan struct{}), calls: map[job.ID]int{}, again: map[job.ID]bool{}}
}

func (a *acted) act(ctx context.Context, id job.ID, again bool) error {
	a.mu.Lock()
	a.calls[id]++
	a.again[id] = again
	a.n++
	n := a.n
	a.mu.Unlock()
	if n == a.after {
		close(a.reached)
	}
	if n >= a.after {
		<-ctx.Done()
		return ctx.Err()
	}
	if id[len(id)-1] == '7' {
		return errors.New("it ends in 7")
	}
	return nil
}

const endless = 1 << 30

func someJobs(n int) []job.ID {
	ids := make([]job.ID, n)
	for i := range ids {
		ids[i] = job.ID(fmt.Sprintf("job-%03d", i))
	}
	return ids
}

// An action whose console stops in the middle is shown as interrupted and continued by another
// one. What the first may have acted on is marked for the second; all else is acted on once.
func TestAnActionIsContinuedByAnotherConsole(t *testing.T) {
	t.Parallel()
	actions := newActions(t)
	ids := someJobs(100)
	a, err := actions.Begin(t.Context(), anAPIKey, "ep", "retry", ids)
	if err != nil {
		t.Fatal(err)
	}
	first := newActed(43)
	ctx, kill := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		(&runner{actions: actions, action: a, ids: ids, actOnce: first.act}).run(ctx)
	}()
	<-first.reached
	if got, err := actions.Find(t.Context(), anAPIKey, a.ID); err != nil || got.Settled == 0 || got.Interrupted(time.Now()) {
		t.Errorf("while it goes on: got %+v, %v", got, err)
	}
	kill()
	<-ended
	got, err := actions.Find(t.Context(), anAPIKey, a.ID)
	if err != nil || !got.Interrupted(time.Now()) || got.Settled < 8 || got.Settled > 43 || got.Done+got.Refused != got.Settled {
		t.Fatalf("after its console: got %+v, %v, want it interrupted in the middle", got, err)
	}
	settled, claimed := got.Settled, got.Claimed
	stored, _, err := actions.Jobs(t.Context(), a.ID)
	if err != nil || len(stored) != len(ids) {
		t.Fatalf("got %d ids, %v", len(stored), err)
	}
	if err := actions.Continue(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	second := newActed(endless)
	(&runner{actions: actions, action: got, ids: stored, actOnce: second.act}).run(t.Context())
	for i, id := range ids {
		want, again := 1, i < claimed
		if i < settled {
			want, again = 0, false
		}
		if second.calls[id] != want || second.again[id] != again || i < settled && first.calls[id] != 1 || i >= claimed && first.calls[id] != 0 {
			t.Errorf("%s: got %d calls and then %d, again %v", id, first.calls[id], second.calls[id], second.again[id])
		}
	}
	end, err := actions.Find(t.Context(), anAPIKey, a.ID)
	if err != nil || !end.Over() || end.Done != 90 || end.Refused != 10 || end.Settled != 100 || len(end.Errors) != 1 {
		t.Errorf("at the end: got %+v, %v, want 90 done and 10 refused", end, err)
	}
	if _, _, err := actions.Jobs(t.Context(), a.ID); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the ids of an action that is over: got %v, want none", err)
	}
}

// A console that comes back after another one has taken its action over leaves it alone.
func TestAnActionIsWorkedOnByOne(t *testing.T) {
	t.Parallel()
	actions := newActions(t)
	ids := someJobs(30)
	a, err := actions.Begin(t.Context(), anAPIKey, "ep", "cancel", ids)
	if err != nil {
		t.Fatal(err)
	}
	frozen := newActed(10)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		(&runner{actions: actions, action: a, ids: ids, actOnce: frozen.act}).run(t.Context())
	}()
	<-frozen.reached
	taken, err := actions.Find(t.Context(), anAPIKey, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	for err := actions.Continue(t.Context(), taken); err != nil; err = actions.Continue(t.Context(), taken) { // between two saves of the other
		if !errors.Is(err, registry.ErrConflict) {
			t.Fatal(err)
		}
		if taken, err = actions.Find(t.Context(), anAPIKey, a.ID); err != nil {
			t.Fatal(err)
		}
	}
	<-ended // with its next save
	(&runner{actions: actions, action: taken, ids: ids, actOnce: newActed(endless).act}).run(t.Context())
	if got, err := actions.Find(t.Context(), anAPIKey, a.ID); err != nil || !got.Over() || got.Done+got.Refused != len(ids) {
		t.Errorf("got %+v, %v, want the second's outcome", got, err)
	}
}

func TestARetryIsNotRepeated(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		x    client.Explanation
		want bool
	}{
		"failed before":       {client.Explanation{Status: job.Failed, Finished: began.Add(-time.Second)}, false},
		"timed out before":    {client.Explanation{Status: job.TimedOut, Finished: began.Add(-time.Second)}, false},
		"waits":               {client.Explanation{Status: job.InQueue}, true},
		"failed again":        {client.Explanation{Status: job.Failed, Finished: began.Add(time.Second)}, true},
		"completed meanwhile": {client.Explanation{Status: job.Completed, Finished: began.Add(time.Second)}, true},
	} {
		if got := isRetried(&tc.x, began); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
