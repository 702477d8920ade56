package console

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/retry"
)

const (
	// batchConcurrency is how many jobs of an action are acted on at a time.
	batchConcurrency = 8
	// minChunk and maxChunk bound the jobs between two saves of an action, which has about
	// chunks of them.
	minChunk, maxChunk, chunks = 8, 100, 50
	// saveInterval is how often an action is saved at least, while a chunk takes longer.
	saveInterval = registry.ActionSilence / 4
	// giveUpTimeout bounds the last save of an action that stops with its process.
	giveUpTimeout = 2 * time.Second
	// maxBatchErrors bounds the errors that are shown.
	maxBatchErrors = 20
	// actRetryDelay is the shortest pause before a job is acted on again.
	actRetryDelay = 600 * time.Millisecond
)

// progress is how far an action has come, for its page.
type progress struct {
	*registry.Action
	Over, Interrupted bool
	// CanContinue: the key may go on with it.
	CanContinue bool
}

// Percent is how much of it is done, 0 to 100.
func (p progress) Percent() int { return 100 * p.Settled / max(1, p.Total) }

// runner works on an action. Any other console may continue it once this one is gone, so what
// it acted on since the last save is acted on twice: actOnce sees to that.
type runner struct {
	actions *registry.Actions
	action  *registry.Action
	ids     []job.ID
	// actOnce acts on a job. again says that this may have been done before.
	actOnce func(ctx context.Context, id job.ID, again bool) error
}

// begin stores an action on jobs, has Run work on it and returns the path of its page.
func (v *visit) begin(endpoint, what string, ids []job.ID) (string, error) {
	a, err := v.s.deps.Actions.Begin(v.ctx, v.apiKey, endpoint, what, ids)
	switch {
	case errors.Is(err, registry.ErrInvalid):
		return "", &pageError{status: http.StatusBadRequest, text: "1 to " + number(registry.MaxActionJobs) + " jobs must be selected, by their ids; got " + plural(len(ids), "job")}
	case errors.Is(err, registry.ErrTooMany):
		return "", &pageError{status: http.StatusTooManyRequests, text: "Too many actions on many jobs go on. Try again once one is over."}
	case err != nil:
		return "", err
	}
	return v.work(a, ids, time.Time{})
}

// work has Run work on an action that began then.
func (v *visit) work(a *registry.Action, ids []job.ID, began time.Time) (string, error) {
	r := &runner{actions: v.s.deps.Actions, action: a, ids: ids, actOnce: actOnce(v.api, a, began)}
	next := pathOf(a.Endpoint) + "/batches/" + url.PathEscape(a.ID)
	if !v.s.start(v.ctx, r.run) {
		return "", v.ctx.Err()
	}
	return next, nil
}

// actOnce cancels or retries a job. A cancelled job may be cancelled again. A job that may
// have been retried is only retried if it has not ended since the action began.
func actOnce(api *client.Client, a *registry.Action, began time.Time) func(context.Context, job.ID, bool) error {
	act := api.Cancel
	if a.What == "retry" {
		act = api.Retry
	}
	return func(ctx context.Context, id job.ID, again bool) error {
		return actPatiently(ctx, func() error {
			if again && a.What == "retry" {
				x, err := api.Explain(ctx, a.Endpoint, id)
				if err != nil || isRetried(x, began) {
					return err
				}
			}
			_, err := act(ctx, a.Endpoint, id)
			return err
		})
	}
}

// isRetried reports whether a job that had failed by then has been retried since.
func isRetried(x *client.Explanation, then time.Time) bool {
	return !x.Status.Retryable() || x.Finished.After(then)
}

// run acts on each of the jobs that is not settled, until ctx ends or another console has
// taken the action over.
func (r *runner) run(ctx context.Context) {
	a := r.action
	again := a.Claimed // up to there
	for a.Settled < len(r.ids) {
		end := min(len(r.ids), a.Settled+min(max(len(r.ids)/chunks, minChunk), maxChunk))
		if again > a.Settled {
			end = min(len(r.ids), again)
		}
		a.Claimed = end
		if r.save(ctx) != nil {
			break
		}
		counts, err := r.chunk(ctx, r.ids[a.Settled:end], again > a.Settled)
		if err != nil {
			break
		}
		a.Settled, a.Done, a.Refused = end, a.Done+counts.done, a.Refused+counts.refused
		a.Errors = mergedErrors(a.Errors, counts.errors)
	}
	if ctx.Err() == nil && a.Settled == len(r.ids) {
		a.Ended = time.Now().UTC()
		_ = r.save(ctx) // fails with ctx, or if another console has taken it over
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	a.Stopped = true
	_ = r.save(ctx) // else it counts as interrupted a few seconds later
}

// save stores the action, again and again while the bus is away. It returns the error of
// ctx, or registry.ErrConflict if another console has taken the action over.
func (r *runner) save(ctx context.Context) error {
	return retry.Do(ctx, retry.Every(actRetryDelay), func(err error) bool { return !errors.Is(err, registry.ErrConflict) }, func() error {
		return r.actions.Save(ctx, r.action)
	})
}

// chunkCounts is what became of the jobs of a chunk.
type chunkCounts struct {
	done, refused int
	errors        map[string]int
}

// chunk acts on jobs side by side and saves the action meanwhile. It returns an error unless
// it has an outcome of each.
func (r *runner) chunk(ctx context.Context, ids []job.ID, again bool) (chunkCounts, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	saving, over := context.WithCancel(ctx)
	var saves sync.WaitGroup
	saves.Go(func() {
		for retry.Sleep(saving, saveInterval) == nil {
			if err := r.save(saving); errors.Is(err, registry.ErrConflict) {
				stop(err)
			}
		}
	})
	counts := chunkCounts{errors: map[string]int{}}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(batchConcurrency)
	for _, id := range ids {
		g.Go(func() error {
			err := r.actOnce(ctx, id, again)
			mu.Lock()
			defer mu.Unlock()
			counts.add(err)
			return nil
		})
	}
	_ = g.Wait() // each error is counted
	over()
	saves.Wait()
	return counts, context.Cause(ctx)
}

func (c *chunkCounts) add(err error) {
	if err == nil {
		c.done++
		return
	}
	c.refused++
	_, text := problem(err)
	c.errors[text]++
}

// mergedErrors adds how often each error came, of at most maxBatchErrors.
func mergedErrors(all, more map[string]int) map[string]int {
	merged := maps.Clone(all)
	if merged == nil {
		merged = map[string]int{}
	}
	for _, text := range slices.Sorted(maps.Keys(more)) {
		if _, known := merged[text]; known || len(merged) < maxBatchErrors {
			merged[text] += more[text]
		}
	}
	return merged
}

// actPatiently acts, and acts again when a rate limit or a busy server says so.
func actPatiently(ctx context.Context, act func() error) error {
	const tries = 20
	var err error
	for range tries {
		err = act()
		refused, answered := errors.AsType[*client.Error](err)
		if !answered || refused.Status != http.StatusTooManyRequests && refused.Status != http.StatusServiceUnavailable {
			return err
		}
		if retry.Sleep(ctx, max(refused.RetryAfter, actRetryDelay)) != nil {
			return err
		}
	}
	return err
}

// loadBatch shows how far an action has come, whichever console works on it.
func loadBatch(v *visit) (any, error) {
	a, err := v.action()
	if err != nil {
		return nil, err
	}
	p := progress{Action: a, Over: a.Over(), Interrupted: a.Interrupted(time.Now())}
	p.CanContinue = p.Interrupted && v.May("submit", a.Endpoint)
	return p, nil
}

// action is that of the path.
func (v *visit) action() (*registry.Action, error) {
	a, err := v.s.deps.Actions.Find(v.ctx, v.apiKey, v.param("id"))
	if errors.Is(err, registry.ErrNotFound) || err == nil && a.Endpoint != v.param("endpoint") {
		return nil, &pageError{status: http.StatusNotFound, text: "No such action of this key in the last day; the list of jobs shows what became of it."}
	}
	return a, err
}

// continueBatch goes on with an action whose console is gone.
func continueBatch(v *visit) (string, error) {
	a, err := v.action()
	if err != nil {
		return "", err
	}
	next := pathOf(a.Endpoint) + "/batches/" + url.PathEscape(a.ID)
	if !a.Interrupted(time.Now()) {
		return next, nil // another click was first
	}
	ids, began, err := v.s.deps.Actions.Jobs(v.ctx, a.ID)
	if errors.Is(err, registry.ErrNotFound) {
		return "", &pageError{status: http.StatusConflict, text: "The action is too old to be continued. Select the jobs again."}
	}
	if err != nil {
		return "", err
	}
	err = v.s.deps.Actions.Continue(v.ctx, a)
	if errors.Is(err, registry.ErrConflict) {
		return next, nil
	}
	if err != nil {
		return "", err
	}
	return v.work(a, ids, began)
}
