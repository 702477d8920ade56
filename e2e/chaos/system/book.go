package system

import (
	"context"
	"slices"
	"sync"
	"time"

	"flightline/e2e/chaos/ledger"
)

// book collects what callers, handlers and the test itself know.
type book struct {
	rule rule

	mu        sync.Mutex
	jobs      map[int]*job
	byWorker  map[string]int // the process of each worker, as handlers saw it
	incidents []incident
	calm      time.Time // the end of the last fault
	still     stalls
	stray     []violation
	// Of the jobs that were judged and forgotten, see retire.
	sums    sums
	retired bits
	found   []violation
}

// sums are the figures of the report.
type sums struct {
	Accepted int
	Lost     int
	Reruns   int // second and later runs
	Doubled  int // jobs whose handler finished more than once
	Uncaused int // jobs that ran again, or after their end, without cause
	Late     int
	Hidden   int           // jobs that were answered 404 for a while
	Slowest  time.Duration // from acceptance to end
}

func newBook(r rule) *book {
	return &book{rule: r, jobs: map[int]*job{}, byWorker: map[string]int{}}
}

// at returns the job of that number; b.mu is held.
func (b *book) at(n int) *job {
	if b.jobs[n] == nil {
		b.jobs[n] = &job{n: n, status: "not answered"}
	}
	return b.jobs[n]
}

// update changes what is known of a job.
func (b *book) update(n int, change func(*job)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b.at(n))
}

// read takes an entry of the ledger.
func (b *book) read(e ledger.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byWorker[e.Worker] = e.Parent
	if b.retired.has(e.N) {
		if e.Kind == ledger.Begin {
			b.stray = append(b.stray, violation{ruleAfterEnd, "job " + e.Job + " began by " + e.By() + " long after its end"})
		}
		return
	}
	j := b.at(e.N)
	if e.Kind == ledger.Begin {
		j.runs = append(j.runs, run{job: e.Job, worker: e.Worker, by: e.By(), began: e.At})
		slices.SortFunc(j.runs, func(a, b run) int { return a.began.Compare(b.began) })
		return
	}
	if i := slices.IndexFunc(j.runs, func(o run) bool { return o.by == e.By() && o.finished.IsZero() }); i >= 0 {
		j.runs[i].finished = e.At
	}
}

// harm notes what is done to a worker from now on, and returns what notes the
// end of it.
func (b *book) harm(kind harm, worker string) (over func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := len(b.incidents)
	b.incidents = append(b.incidents, incident{harm: kind, worker: worker, from: time.Now()})
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.incidents[i].until = time.Now()
	}
}

// stalled notes that the machine stood still.
func (b *book) stalled(s stall) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.still = append(b.still, s)
}

// stillFor is how long the machine stood still, all in all.
func (b *book) stillFor() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.still.within(time.Time{}, time.Now())
}

// calmed notes that a fault is over.
func (b *book) calmed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calm = time.Now()
}

// runs counts the runs that have begun.
func (b *book) runs() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, j := range b.jobs {
		n += len(j.runs)
	}
	return n
}

// process is the process of a worker, as the handlers that it started saw it.
func (b *book) process(worker string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byWorker[worker]
}

// worker is the worker of the last run of job n, "" if there was none.
func (b *book) worker(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[n]; j != nil && len(j.runs) > 0 {
		return j.runs[len(j.runs)-1].worker
	}
	return ""
}

// acceptedSince counts the jobs that were accepted after an instant.
func (b *book) acceptedSince(t time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, j := range b.jobs {
		if j.accepted.After(t) {
			n++
		}
	}
	return n
}

// endedIDs are the ids of the jobs that have ended.
func (b *book) endedIDs() (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.jobs {
		if !j.ended.IsZero() {
			ids = append(ids, j.id)
		}
	}
	return ids
}

// open counts the accepted jobs that are not known to have ended.
func (b *book) open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, j := range b.jobs {
		if j.ended.IsZero() && !j.accepted.IsZero() {
			n++
		}
	}
	return n
}

// follow reads the ledger until ctx ends, and once more then.
func (b *book) follow(ctx context.Context, r *ledger.Reader) error {
	for {
		last := ctx.Err() != nil
		if err := b.readAll(r); err != nil || last {
			return err
		}
		wait(ctx, pollInterval)
	}
}

func (b *book) readAll(r *ledger.Reader) error {
	for {
		e, ok, err := r.Next()
		if err != nil || !ok {
			return err
		}
		b.read(e)
	}
}

// retire judges the jobs that ended before the instant and forgets them, so
// that a long test needs no more memory than a short one.
func (b *book) retire(before time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, j := range b.jobs {
		if !j.ended.IsZero() && j.ended.Before(before) {
			b.close(j, time.Time{})
			delete(b.jobs, n)
			b.retired.add(n)
		}
	}
}

// close adds a job to the sums; b.mu is held.
func (b *book) close(j *job, calm time.Time) {
	if !j.accepted.IsZero() {
		b.sums.Accepted++
	}
	finished := 0
	for _, o := range j.runs {
		if !o.finished.IsZero() {
			finished++
		}
	}
	if j.wasHidden() {
		b.sums.Hidden++
	}
	b.sums.Reruns += max(0, len(j.runs)-1)
	if finished > 1 {
		b.sums.Doubled++
	}
	if !j.ended.IsZero() && !j.accepted.IsZero() {
		b.sums.Slowest = max(b.sums.Slowest, j.ended.Sub(j.accepted))
	}
	b.take(append(b.rule.judge(j, b.incidents), b.rule.late(j, calm, b.still)...))
}

// take adds violations of one job to the sums and the list.
func (b *book) take(found []violation) {
	of := func(rules ...string) int {
		return min(1, len(slices.DeleteFunc(slices.Clone(found), func(v violation) bool { return !slices.Contains(rules, v.Rule) })))
	}
	b.sums.Lost += of(ruleLost)
	b.sums.Uncaused += of(ruleDoubled, ruleAfterEnd)
	b.sums.Late += of(ruleLate)
	b.found = append(b.found, found...)
}

// audit judges all that is left and returns the result.
func (b *book) audit() (sums, []violation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*job
	for _, j := range b.jobs {
		all = append(all, j)
	}
	slices.SortFunc(all, func(x, y *job) int { return x.n - y.n })
	for _, j := range all {
		b.close(j, b.calm)
	}
	for _, v := range append(b.rule.passedOver(all, b.still), b.stray...) {
		b.take([]violation{v})
	}
	return b.sums, b.found
}

// bits is a set of small numbers.
type bits []uint64

func (s *bits) add(n int) {
	for len(*s) <= n/64 {
		*s = append(*s, 0)
	}
	(*s)[n/64] |= 1 << (n % 64)
}

func (s *bits) has(n int) bool { return n/64 < len(*s) && (*s)[n/64]&(1<<(n%64)) != 0 }
