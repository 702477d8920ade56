package console

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/retry"
)

const (
	// batchConcurrency is how many jobs of an action are acted on at a time.
	batchConcurrency = 8
	// maxBatches bounds the actions whose progress is kept: the oldest go first.
	maxBatches = 200
	// maxBatchErrors bounds the errors that are shown.
	maxBatchErrors = 20
)

// batches are what was begun with many jobs at once, in this process.
type batches struct {
	mu   sync.Mutex
	list map[string]*batch
}

func newBatches() *batches { return &batches{list: map[string]*batch{}} }

// batch is one action on many jobs.
type batch struct {
	apiKey string
	mu     sync.Mutex
	progress
}

// progress is how far an action has come.
type progress struct {
	ID, Endpoint, What string
	Total, Done        int
	Refused            int
	// Errors are why some were refused, with how many, at most 20 texts.
	Errors map[string]int
	Began  time.Time
	Ended  time.Time
	Over   bool
}

// Percent is how much of it is done, 0 to 100.
func (p progress) Percent() int { return 100 * (p.Done + p.Refused) / max(1, p.Total) }

func (all *batches) begin(apiKey, endpoint, what string, total int) *batch {
	b := &batch{apiKey: apiKey, progress: progress{ID: newToken(), Endpoint: endpoint, What: what, Total: total, Errors: map[string]int{}, Began: time.Now()}}
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.list) >= maxBatches {
		oldest := slices.MinFunc(slices.Collect(maps.Values(all.list)), func(a, b *batch) int { return a.Began.Compare(b.Began) })
		delete(all.list, oldest.ID)
	}
	all.list[b.ID] = b
	return b
}

// find is an action of the key, nil for an unknown id.
func (all *batches) find(apiKey, id string) *batch {
	all.mu.Lock()
	defer all.mu.Unlock()
	if b := all.list[id]; b != nil && b.apiKey == apiKey {
		return b
	}
	return nil
}

// now is a copy of the progress.
func (b *batch) now() progress {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.progress
	p.Errors = maps.Clone(p.Errors)
	return p
}

// run acts on each of the jobs.
func (b *batch) run(ids []string, endpoint string, act func(context.Context, string, job.ID) (*client.Job, error)) func(context.Context) {
	return func(ctx context.Context) {
		var g errgroup.Group
		g.SetLimit(batchConcurrency)
		for _, id := range ids {
			g.Go(func() error {
				b.count(actPatiently(ctx, func() error {
					_, err := act(ctx, endpoint, job.ID(id))
					return err
				}))
				return nil
			})
		}
		_ = g.Wait() // each error is counted
		b.mu.Lock()
		defer b.mu.Unlock()
		b.Over, b.Ended = true, time.Now()
	}
}

func (b *batch) count(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.Done++
		return
	}
	b.Refused++
	_, text := problem(err)
	if _, known := b.Errors[text]; known || len(b.Errors) < maxBatchErrors {
		b.Errors[text]++
	}
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
		if retry.Sleep(ctx, max(refused.RetryAfter, busyPause)) != nil {
			return err
		}
	}
	return err
}
