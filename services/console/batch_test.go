package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
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

func (a *acted) act(ctx context.Context, id job.ID, again bool, began time.Time) error {
	if began.IsZero() {
		return errors.New("the time at which the action began is missing")
	}
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

// pagesOf lists jobs by 100, and blocks from the after-th page on until ctx ends.
func pagesOf(ids []job.ID, after int, reached chan struct{}) func(context.Context) ([]job.ID, bool, error) {
	n := 0
	return func(ctx context.Context) ([]job.ID, bool, error) {
		if n++; n >= after {
			close(reached)
			<-ctx.Done()
			return nil, false, ctx.Err()
		}
		return ids[100*(n-1) : min(100*n, len(ids))], 100*n >= len(ids), nil
	}
}

// An action takes 10,000 jobs of its filter. One whose console stops while it lists them has acted
// on none; another console lists them again.
func TestAnActionIsContinuedWhileItsJobsAreListed(t *testing.T) {
	t.Parallel()
	actions := newActions(t)
	ids := someJobs(registry.MaxActionJobs + 30)
	a, err := actions.BeginListing(t.Context(), anAPIKey, "ep", "retry", "status=FAILED")
	if err != nil {
		t.Fatal(err)
	}
	first, reached := newActed(endless), make(chan struct{})
	ctx, kill := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		(&runner{actions: actions, action: a, list: pagesOf(ids, 8, reached), actOnce: first.act}).run(ctx)
	}()
	<-reached
	if got, err := actions.Find(t.Context(), anAPIKey, a.ID); err != nil || got.Total != 700 || got.Filter == "" || got.Interrupted(time.Now()) {
		t.Errorf("while it lists: got %+v, %v, want 700 so far", got, err)
	}
	kill()
	<-ended
	got, err := actions.Find(t.Context(), anAPIKey, a.ID)
	if err != nil || !got.Interrupted(time.Now()) || got.Filter == "" || first.n != 0 {
		t.Fatalf("after its console: got %+v, %v, %d acted on, want it interrupted", got, err, first.n)
	}
	if err := actions.Continue(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	second := newActed(endless)
	(&runner{actions: actions, action: got, list: pagesOf(ids, endless, nil), actOnce: second.act}).run(t.Context())
	end, err := actions.Find(t.Context(), anAPIKey, a.ID)
	if err != nil || !end.Over() || end.Total != registry.MaxActionJobs || end.Done+end.Refused != end.Total || end.Filter != "" {
		t.Errorf("at the end: got %+v, %v, want all done", end, err)
	}
	for i, id := range ids {
		want := 0
		if i < registry.MaxActionJobs {
			want = 1
		}
		if second.calls[id] != want || second.again[id] {
			t.Fatalf("%s: got %d calls, again %v, want %d", id, second.calls[id], second.again[id], want)
		}
	}
}

// An action whose jobs cannot be listed says why, and can be continued.
func TestAnActionWhoseJobsCannotBeListed(t *testing.T) {
	t.Parallel()
	actions := newActions(t)
	a, err := actions.BeginListing(t.Context(), anAPIKey, "ep", "retry", "status=FAILED")
	if err != nil {
		t.Fatal(err)
	}
	away := func(context.Context) ([]job.ID, bool, error) { return nil, false, client.ErrUnreachable }
	(&runner{actions: actions, action: a, list: away}).run(t.Context())
	got, err := actions.Find(t.Context(), anAPIKey, a.ID)
	if err != nil || !got.Interrupted(time.Now()) || len(got.Errors) != 1 {
		t.Fatalf("got %+v, %v, want it interrupted for one reason", got, err)
	}
	page := renderedBy(t, "batch", &visit{apiKey: anAPIKey}, progress{Action: got, Interrupted: true, CanContinue: true})
	for _, want := range []string{"Interrupted: 0 jobs so far", "Nothing is done so far", "Continue", "The API does not answer"} {
		if !strings.Contains(page, want) {
			t.Errorf("got %s, want %q", page, want)
		}
	}
	if err := actions.Continue(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	none := func(context.Context) ([]job.ID, bool, error) { return nil, true, nil }
	(&runner{actions: actions, action: got, list: none}).run(t.Context())
	if end, err := actions.Find(t.Context(), anAPIKey, a.ID); err != nil || !end.Over() || end.Total != 0 || len(end.Errors) != 0 {
		t.Errorf("with no job left: got %+v, %v, want it over", end, err)
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

// A retry that was answered by a 503, or not at all, may be done all the same: then it is
// neither done once more nor counted as refused.
func TestARetryWithoutAnOutcome(t *testing.T) {
	t.Parallel()
	began := time.Now().UTC()
	for name, tc := range map[string]struct {
		after    job.Status    // the first one
		finished time.Duration // after the action began
		broken   bool          // the connection was
		want     int
	}{
		"503, and it is done":                        {job.InQueue, 0, false, 1},
		"503, and it is not done":                    {job.Failed, -time.Second, false, 2},
		"no answer, and it is done":                  {job.InQueue, 0, true, 1},
		"no answer, and it is not done":              {job.Failed, -time.Second, true, 2},
		"503, it is done and has failed again":       {job.Failed, time.Second, false, 1},
		"no answer, it is done and has failed again": {job.Failed, time.Second, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, retries := job.Failed, 0
			api := apiOf(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet:
				case status != job.Failed:
					w.WriteHeader(http.StatusBadRequest)
				case retries == 0:
					if retries, status = 1, tc.after; tc.broken {
						panic(http.ErrAbortHandler)
					}
					w.WriteHeader(http.StatusServiceUnavailable)
				default:
					retries, status = retries+1, job.InQueue
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"id": "job", "status": status, "finishedAt": began.Add(tc.finished)})
			}, client.WithPatience(0))
			act := actOnce(api, &registry.Action{Endpoint: "ep", What: "retry"})
			if err := act(t.Context(), "job", false, began); err != nil || retries != tc.want {
				t.Errorf("got %d retries, %v, want %d", retries, err, tc.want)
			}
		})
	}
}

// A console that goes on after a power loss knows which jobs may have been acted on.
func TestAnActionIsOnTheDiskBeforeItsJobsAreActedOn(t *testing.T) {
	t.Parallel()
	actions := newActions(t)
	ids := someJobs(20)
	a, err := actions.Begin(t.Context(), anAPIKey, "ep", "retry", ids)
	if err != nil {
		t.Fatal(err)
	}
	acts, waits := newActed(endless), 0
	durable := func(ctx context.Context, stream string) error {
		waits++
		got, err := actions.Find(ctx, anAPIKey, a.ID)
		if err != nil || stream != streams.Bucket(streams.BucketActions) {
			return err
		}
		acts.mu.Lock()
		defer acts.mu.Unlock()
		if got.Claimed <= acts.n || acts.n != got.Settled {
			t.Errorf("got %d of %d jobs acted on before %d of them are on the disk", acts.n, got.Settled, got.Claimed)
		}
		if waits == 1 {
			return errors.New("broken disk")
		}
		return nil
	}
	(&runner{actions: actions, action: a, ids: ids, actOnce: acts.act, durable: durable}).run(t.Context())
	if end, err := actions.Find(t.Context(), anAPIKey, a.ID); err != nil || !end.Over() || acts.n != len(ids) || waits < 3 {
		t.Errorf("got %+v, %v with %d acted on and %d waits, want all done", end, err, acts.n, waits)
	}
}
