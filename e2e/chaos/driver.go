package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// driver is the callers: it submits jobs and does to them what callers do, at
// bad moments.
type driver struct {
	site   *site
	client *client
	seed   uint64

	sent     atomic.Int64 // submissions
	accepted atomic.Int64 // of them, for sure
	mu       sync.Mutex
	jobs     map[string]string // accepted, or perhaps accepted: id to endpoint
}

const (
	// atOnce is how many jobs are looked after at a time; more than there are
	// slots, so that some wait.
	atOnce = 56
	// patience is how long a caller looks after one job.
	patience = 45 * time.Second
	// burst is how many jobs a purge finds, or not.
	burst = 12
	// awayPause is what a caller waits when the API is away.
	awayPause = 500 * time.Millisecond
	// purgePause is the time between two purges.
	purgePause = 2 * time.Second
)

func newDriver(s *site, seed uint64) *driver {
	return &driver{site: s, client: newClient(s.apis, s.ledger, s.fault), seed: seed, jobs: map[string]string{}}
}

// run sends jobs until jobs were accepted and enough says so, or ctx ends. The
// second endpoint is for jobs that are purged and never cancelled, so that the
// two can be distinguished.
func (d *driver) run(ctx context.Context, jobs int, enough func() bool) {
	purges, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { d.purgeNowAndThen(purges) })
	slots := make(chan struct{}, atOnce)
	for n := 0; ctx.Err() == nil && (d.accepted.Load() < int64(jobs) || !enough()); n++ {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			d.script(ctx, rand.New(rand.NewPCG(d.seed, uint64(n)))) //nolint:gosec // chance, no secret
		})
	}
	stop()
	wg.Wait()
}

// script is the life of one job as its callers make it.
func (d *driver) script(ctx context.Context, rng *rand.Rand) {
	e := d.site.endpoints[0].ID
	id := d.submit(ctx, rng, e)
	if id == "" {
		wait(ctx, awayPause)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var callers sync.WaitGroup
	defer callers.Wait()
	if rng.IntN(100) < 22 {
		pause := between(rng, 0, 1200*time.Millisecond)
		d.twice(&callers, ctx, pause, func(api int) { d.client.cancel(ctx, api, e, id) })
	}
	if rng.IntN(100) < 14 {
		pause, ttl := between(rng, 0, 800*time.Millisecond), newTTL(rng)
		callers.Go(func() {
			if wait(ctx, pause) {
				d.client.setTTL(ctx, rng.IntN(2), e, id, ttl)
			}
		})
	}
	d.watch(ctx, rng, e, id)
}

// newTTL either ends the job soon, or is longer than the ttl before.
func newTTL(rng *rand.Rand) time.Duration {
	if rng.IntN(3) == 0 {
		return 2 * time.Hour
	}
	return between(rng, time.Second, 6*time.Second).Truncate(time.Millisecond)
}

// twice does something twice at the same time, by different instances.
func (d *driver) twice(wg *sync.WaitGroup, ctx context.Context, pause time.Duration, do func(api int)) { //nolint:revive // the group comes first
	for api := range 2 {
		wg.Go(func() {
			if wait(ctx, pause) {
				do(api)
			}
		})
	}
}

// watch polls the job to its end, and retries it when it failed.
func (d *driver) watch(ctx context.Context, rng *rand.Rand, e, id string) {
	retries := rng.IntN(3)
	for wait(ctx, between(rng, 100*time.Millisecond, 700*time.Millisecond)) {
		seen := d.client.status(ctx, rng.IntN(2), e, id)
		switch {
		case seen.Answer == gone:
			return
		case seen.Answer != yes || !terminal(seen.Status):
			continue
		case retries > 0 && (seen.Status == failed || seen.Status == timedOut):
			retries--
			var both sync.WaitGroup
			d.twice(&both, ctx, 0, func(api int) { d.client.retry(ctx, api, e, id) })
			both.Wait()
			continue
		}
		return
	}
}

func (d *driver) submit(ctx context.Context, rng *rand.Rand, e string) string {
	in, p := input{Tag: int(d.sent.Add(1))}, policy{LowPriority: rng.IntN(5) == 0}
	if rng.IntN(100) < 8 {
		in.Pad = strings.Repeat(fmt.Sprintf("%07d ", in.Tag), megabyte/8)
	}
	if rng.IntN(100) < 35 {
		p.ExecutionTimeout = 5000
	}
	if rng.IntN(100) < 6 {
		p.TTL = 10_000
	}
	var told entry
	if rng.IntN(100) < 10 {
		told = d.client.submitSync(ctx, rng.IntN(2), e, in, p, 2*time.Second)
	} else {
		told = d.client.submit(ctx, rng.IntN(2), e, in, p)
	}
	d.note(told)
	return told.Job
}

func (d *driver) note(told entry) {
	if told.Job == "" {
		return
	}
	if told.Answer == yes {
		d.accepted.Add(1)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs[told.Job] = told.Endpoint
}

// purgeNowAndThen sends a burst of jobs and purges the endpoint, twice at once.
func (d *driver) purgeNowAndThen(ctx context.Context) {
	e := d.site.endpoints[1].ID
	rng := rand.New(rand.NewPCG(d.seed, 5)) //nolint:gosec // chance, no secret
	for wait(ctx, purgePause) {
		var jobs sync.WaitGroup
		for range burst {
			low := rng.IntN(3) == 0
			jobs.Go(func() {
				in := input{Tag: int(d.sent.Add(1))}
				d.note(d.client.submit(ctx, in.Tag%2, e, in, policy{LowPriority: low}))
			})
		}
		var purges sync.WaitGroup
		d.twice(&purges, ctx, between(rng, 0, 200*time.Millisecond), func(api int) { d.client.purge(ctx, api, e) })
		jobs.Wait()
		purges.Wait()
	}
}

// lastLook reads the status of every job once all is quiet, several at a time.
func (d *driver) lastLook(ctx context.Context) {
	slots := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for _, id := range d.ids() {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for d.client.status(ctx, 0, d.jobs[id], id).Answer == unknown {
				if !wait(ctx, again) {
					return
				}
			}
		})
	}
	wg.Wait()
}

func (d *driver) ids() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for id := range d.jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
