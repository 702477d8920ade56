package console

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/api"
	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/retry"
	"flightline/streams"
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
	// list returns the next jobs of the action's Filter; over says that they are the last ones.
	list func(ctx context.Context) (ids []job.ID, over bool, err error)
	// began is when the jobs of the action were stored, by the server's clock; run reads it.
	began time.Time
	// actOnce acts on a job. again says that this may have been done before, since began.
	actOnce func(ctx context.Context, id job.ID, again bool, began time.Time) error
	// durable is that of Deps.
	durable func(ctx context.Context, stream string) error
}

// begin stores an action on jobs, or on those of a filter if it has one, has Run work on it and
// returns the path of its page.
func (v *visit) begin(endpoint, what string, ids []job.ID, filter string) (string, error) {
	var a *registry.Action
	var err error
	if filter != "" {
		a, err = v.s.deps.Actions.BeginListing(v.ctx, v.apiKey, endpoint, what, filter)
	} else {
		a, err = v.s.deps.Actions.Begin(v.ctx, v.apiKey, endpoint, what, ids)
	}
	switch {
	case errors.Is(err, registry.ErrInvalid) && filter != "":
		return "", &pageError{status: http.StatusBadRequest, text: "The filter is too long: it has " + api.Size(len(filter)) + " of text."}
	case errors.Is(err, registry.ErrInvalid):
		return "", &pageError{status: http.StatusBadRequest, text: "1 to " + number(registry.MaxActionJobs) + " jobs must be selected, by their ids; got " + plural(len(ids), "job")}
	case errors.Is(err, registry.ErrTooMany):
		return "", &pageError{status: http.StatusTooManyRequests, text: "Too many actions on many jobs go on. Try again once one is over."}
	case err != nil:
		return "", err
	}
	return v.work(a, ids)
}

// work has Run work on an action.
func (v *visit) work(a *registry.Action, ids []job.ID) (string, error) {
	r := &runner{actions: v.s.deps.Actions, action: a, ids: ids, list: listPatiently(v.api, a), actOnce: actOnce(v.api, a), durable: v.s.deps.Durable}
	if !v.s.start(v.ctx, r.run) {
		return "", v.ctx.Err()
	}
	return batchPath(a), nil
}

// batchPath is the page that shows how far an action is.
func batchPath(a *registry.Action) string {
	return pathOf(a.Endpoint) + "/batches/" + url.PathEscape(a.ID)
}

// listPatiently lists the jobs of an action's filter, with pauses that leave others half of the
// lists that an endpoint answers.
func listPatiently(api *client.Client, a *registry.Action) func(context.Context) ([]job.ID, bool, error) {
	query, _ := url.ParseQuery(a.Filter) // our own
	l, invalid := newJobLister(api, a.Endpoint, filterOf(query), manyPage)
	var lists listQuota
	var pause time.Duration
	return func(ctx context.Context) (ids []job.ID, over bool, err error) {
		if err := cmp.Or(invalid, retry.Sleep(ctx, pause)); err != nil {
			return nil, false, err
		}
		began := time.Now()
		var jobs []client.ListedJob
		err = actPatiently(ctx, func() error {
			jobs, err = l.next(ctx)
			return err
		})
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		pause = lists.wait(began) - time.Since(began)
		return ids, l.over, err
	}
}

// actOnce cancels or retries a job. A cancelled job may be cancelled again. A job that may
// have been retried is only retried if it has not ended since the action began.
func actOnce(api *client.Client, a *registry.Action) func(context.Context, job.ID, bool, time.Time) error {
	act := api.Cancel
	if a.What == "retry" {
		act = api.Retry
	}
	return func(ctx context.Context, id job.ID, again bool, began time.Time) error {
		return actPatiently(ctx, func() error {
			if again && a.What == "retry" {
				x, err := api.Explain(ctx, a.Endpoint, id)
				if err != nil || isRetried(x, began) {
					return err
				}
			}
			_, err := act(ctx, a.Endpoint, id)
			again = again || isUnknown(err)
			return err
		})
	}
}

// isRetried reports whether a job that had failed by then has been retried since.
func isRetried(x *client.Explanation, then time.Time) bool {
	return !x.Status.Retryable() || x.Finished.After(then)
}

// run lists the jobs of the action, if they are not, and acts on each that is not settled, until
// ctx ends or another console has taken the action over.
func (r *runner) run(ctx context.Context) {
	a := r.action
	if a.Filter != "" && r.listAll(ctx) != nil {
		r.giveUp(ctx)
		return
	}
	if r.readBegan(ctx) != nil {
		r.giveUp(ctx)
		return
	}
	again := a.Claimed // up to there
	for a.Settled < len(r.ids) {
		end := min(len(r.ids), a.Settled+min(max(len(r.ids)/chunks, minChunk), maxChunk))
		if again > a.Settled {
			end = min(len(r.ids), again)
		}
		a.Claimed = end
		if r.claim(ctx) != nil {
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
	r.giveUp(ctx)
}

// readBegan reads when the jobs of the action were stored.
func (r *runner) readBegan(ctx context.Context) error {
	return r.storing(ctx, func() (err error) {
		_, r.began, err = r.actions.Jobs(ctx, r.action.ID)
		return err
	})
}

// giveUp stores that nobody works on the action.
func (r *runner) giveUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	r.action.Stopped = true
	_ = r.save(ctx) // else it counts as interrupted a few seconds later
}

// listAll lists the jobs of the action and stores them, the first MaxActionJobs at most. It
// begins at the newest each time: before all are stored, none is acted on. Why it failed is an
// error of the action.
func (r *runner) listAll(ctx context.Context) error {
	a := r.action
	a.Total, a.Errors = 0, nil
	for over := false; !over && len(r.ids) < registry.MaxActionJobs; a.Total = len(r.ids) {
		if err := r.save(ctx); err != nil {
			return err
		}
		var page []job.ID
		var failed error
		if err := r.saving(ctx, func(ctx context.Context) { page, over, failed = r.list(ctx) }); err != nil {
			return err
		}
		if failed != nil {
			_, text := problem(failed)
			a.Errors = map[string]int{text: 1}
			return failed
		}
		r.ids = append(r.ids, page...)
	}
	listed := r.ids[:min(len(r.ids), registry.MaxActionJobs)]
	return r.storing(ctx, func() (err error) {
		r.ids, err = r.actions.SetJobs(ctx, a, listed)
		return err
	})
}

// save stores the action, again and again while the bus is away. It returns the error of
// ctx, or registry.ErrConflict if another console has taken the action over.
func (r *runner) save(ctx context.Context) error {
	return r.storing(ctx, func() error { return r.actions.Save(ctx, r.action) })
}

// claim is save that returns once it is on the disk: a power loss must not take what the next
// console has to know of the jobs that are acted on then.
func (r *runner) claim(ctx context.Context) error {
	return r.storing(ctx, func() error {
		err := r.actions.Save(ctx, r.action)
		if err == nil && r.durable != nil {
			err = r.durable(ctx, streams.Bucket(streams.BucketActions))
		}
		return err
	})
}

// storing calls store until it succeeds, ctx ends or the error is a final one.
func (r *runner) storing(ctx context.Context, store func() error) error {
	return retry.Do(ctx, retry.Every(actRetryDelay), func(err error) bool {
		return !errors.Is(err, registry.ErrConflict) && !errors.Is(err, registry.ErrInvalid) && !errors.Is(err, registry.ErrNotFound)
	}, store)
}

// saving saves the action at times while work goes on, whose context ends when another console
// has taken it over. It returns why that context ended, if it did.
func (r *runner) saving(ctx context.Context, work func(context.Context)) error {
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
	work(ctx)
	over()
	saves.Wait()
	return context.Cause(ctx)
}

// chunkCounts is what became of the jobs of a chunk.
type chunkCounts struct {
	done, refused int
	errors        map[string]int
}

// chunk acts on jobs side by side and saves the action meanwhile. It returns an error unless
// it has an outcome of each.
func (r *runner) chunk(ctx context.Context, ids []job.ID, again bool) (chunkCounts, error) {
	counts := chunkCounts{errors: map[string]int{}}
	err := r.saving(ctx, func(ctx context.Context) {
		var mu sync.Mutex
		var g errgroup.Group
		g.SetLimit(batchConcurrency)
		for _, id := range ids {
			g.Go(func() error {
				err := r.actOnce(ctx, id, again, r.began)
				mu.Lock()
				defer mu.Unlock()
				counts.add(err)
				return nil
			})
		}
		_ = g.Wait() // each error is counted
	})
	return counts, err
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
	merged := map[string]int{}
	maps.Copy(merged, all)
	for _, text := range slices.Sorted(maps.Keys(more)) {
		if _, known := merged[text]; known || len(merged) < maxBatchErrors {
			merged[text] += more[text]
		}
	}
	return merged
}

// isUnknown reports whether what was asked for may be done, though the answer does not say so.
func isUnknown(err error) bool {
	refused, answered := errors.AsType[*client.Error](err)
	return answered && refused.Status == http.StatusServiceUnavailable || errors.Is(err, client.ErrUnreachable)
}

// actPatiently acts, and acts again when a rate limit or a busy server says so, and while the
// API does not answer.
func actPatiently(ctx context.Context, act func() error) error {
	const tries = 20
	var err error
	for range tries {
		err = act()
		pause, busy := isBusy(err)
		if !busy && !isUnknown(err) {
			return err
		}
		if retry.Sleep(ctx, max(pause, actRetryDelay)) != nil {
			return err
		}
	}
	return err
}

// isBusy reports whether a rate limit or a busy server refused a request, and for how long it
// asks to wait.
func isBusy(err error) (pause time.Duration, busy bool) {
	refused, answered := errors.AsType[*client.Error](err)
	if !answered || refused.Status != http.StatusTooManyRequests && refused.Status != http.StatusServiceUnavailable {
		return 0, false
	}
	return refused.RetryAfter, true
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
	if !a.Interrupted(time.Now()) {
		return batchPath(a), nil // another click was first
	}
	var ids []job.ID
	if a.Filter == "" {
		ids, _, err = v.s.deps.Actions.Jobs(v.ctx, a.ID)
	}
	if errors.Is(err, registry.ErrNotFound) {
		return "", &pageError{status: http.StatusConflict, text: "The action is too old to be continued. Select the jobs again."}
	}
	if err != nil {
		return "", err
	}
	err = v.s.deps.Actions.Continue(v.ctx, a)
	if errors.Is(err, registry.ErrConflict) {
		return batchPath(a), nil
	}
	if err != nil {
		return "", err
	}
	return v.work(a, ids)
}
