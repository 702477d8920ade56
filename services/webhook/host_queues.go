package webhook

import (
	"context"
	"sync"
	"time"

	"flightline/shared/deliveries"
	"flightline/shared/retry"
	"flightline/streams"
)

const (
	// initialConcurrency is how many attempts at once a new host has; each
	// success adds one, each failure halves them.
	initialConcurrency = 2
	// defaultMaxWaiting is how many tasks wait in memory.
	defaultMaxWaiting = 65_536
	// maxExpectedWait is the longest expected wait at which a full memory stops
	// reading. Beyond it, half of the tasks of the slowest host are released.
	maxExpectedWait = 30 * time.Second
	// fullCheckInterval is how often the hosts are compared while memory is full.
	fullCheckInterval = 100 * time.Millisecond
	// minReleaseDelay and maxReleaseDelay bound how long a task is released for.
	minReleaseDelay, maxReleaseDelay = time.Second, 5 * time.Minute
	// extendInterval is how often the leases of waiting tasks are extended.
	extendInterval = streams.WebhookWait / 8
	// staleTimeout is the age of a lease at which a waiting task is left for its
	// redelivery: an attempt must end before the lease does.
	staleTimeout = streams.WebhookWait / 2
	// maxIdleHosts is how many hosts are remembered while nothing waits for them.
	maxIdleHosts = 4096
)

// task is a webhook task of the queue and where it goes.
type task struct {
	*deliveries.Task
	to target
	// extended is when its lease began or was last extended.
	extended time.Time
}

func newTask(c *deliveries.Task) *task {
	return &task{Task: c, to: targetOf(c.Job.Webhook), extended: time.Now()}
}

// outcome is what an attempt shows about its host.
type outcome int

const (
	untried outcome = iota
	succeeded
	failed
)

// hostQueues hold the tasks that wait in memory, by host.
type hostQueues struct {
	cfg     Config
	deliver func(*task) outcome
	start   func(func())
	slots   chan struct{} // one for each attempt at once
	// unproven is one for each of those to hosts that did not answer last time, or were never
	// tried: half of the slots. However many of them hang, others have the rest.
	unproven chan struct{}

	mu      sync.Mutex
	room    *sync.Cond // fewer wait, or it is closed
	hosts   map[string]*hostQueue
	waiting int
	closed  bool
}

// hostQueue has the tasks of one origin: scheme, host and port.
type hostQueue struct {
	origin      string
	waiting     []*task
	running     int
	concurrency concurrency
	proven      bool // its last attempt succeeded
	// released is about how many tasks were released and are not back.
	released int
}

func newHostQueues(cfg Config, deliver func(*task) outcome, start func(func())) *hostQueues {
	q := &hostQueues{
		cfg: cfg, deliver: deliver, start: start, hosts: map[string]*hostQueue{},
		slots: make(chan struct{}, cfg.MaxConcurrency), unproven: make(chan struct{}, max(1, cfg.MaxConcurrency/2)),
	}
	q.room = sync.NewCond(&q.mu)
	return q
}

// add queues a task. It blocks while there is no room.
func (q *hostQueues) add(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.makeRoom()
	if q.closed {
		t.Nak(0)
		return
	}
	host := q.hosts[t.to.origin]
	if host == nil {
		host = &hostQueue{origin: t.to.origin, concurrency: concurrency{limit: min(initialConcurrency, q.cfg.MaxPerHost), since: time.Now()}}
		q.hosts[host.origin] = host
	}
	if !t.Fresh {
		host.released = max(host.released-1, 0)
	}
	host.waiting = append(host.waiting, t)
	q.waiting++
	if host.running < host.concurrency.limit {
		host.running++
		q.start(func() { q.work(host) })
	}
}

// makeRoom returns when another task may wait, or at the end. The host that is
// expected to take longest makes room, unless all are expected to be done soon.
func (q *hostQueues) makeRoom() {
	for q.waiting >= q.cfg.maxWaiting && !q.closed {
		var slowest *hostQueue
		var longest time.Duration
		for _, host := range q.hosts {
			if d := host.concurrency.expectedWait(len(host.waiting)); d >= longest {
				slowest, longest = host, d
			}
		}
		if longest <= maxExpectedWait {
			check := time.AfterFunc(fullCheckInterval, q.room.Broadcast)
			q.room.Wait()
			check.Stop()
			continue
		}
		q.releaseHalf(slowest)
	}
}

// releaseHalf releases half of a host's tasks, each for half of the time until
// its turn is expected: so the queue does not run dry, and few tasks return too
// early.
func (q *hostQueues) releaseHalf(host *hostQueue) {
	keep := len(host.waiting) / 2
	for i, t := range host.waiting[keep:] {
		host.released++
		t.Nak(min(max(host.concurrency.expectedWait(keep+host.released)/2, minReleaseDelay), maxReleaseDelay))
		q.waiting--
		host.waiting[keep+i] = nil
	}
	host.waiting = host.waiting[:keep]
}

// work delivers a host's tasks until none waits, or too many workers do this.
func (q *hostQueues) work(host *hostQueue) {
	for {
		leave := q.enter(host)
		t := q.next(host)
		if t == nil {
			leave()
			return
		}
		began := time.Now()
		result := q.deliver(t)
		leave()
		q.adjust(host, time.Since(began), result)
	}
}

// enter waits for a slot, which leave gives back.
func (q *hostQueues) enter(host *hostQueue) (leave func()) {
	q.mu.Lock()
	proven := host.proven
	q.mu.Unlock()
	if !proven {
		q.unproven <- struct{}{}
	}
	q.slots <- struct{}{}
	return func() {
		<-q.slots
		if !proven {
			<-q.unproven
		}
	}
}

// next removes the oldest task. It returns nil when the worker is to end.
func (q *hostQueues) next(host *hostQueue) *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(host.waiting) > 0 && host.running <= host.concurrency.limit {
		t := host.waiting[0]
		host.waiting[0] = nil
		host.waiting = host.waiting[1:]
		q.waiting--
		q.room.Signal()
		if time.Since(t.extended) < staleTimeout {
			return t
		}
	}
	if host.running--; host.running == 0 && len(host.waiting) == 0 && len(q.hosts) > maxIdleHosts {
		delete(q.hosts, host.origin)
	}
	return nil
}

// adjust sets the host's concurrency after an attempt, and starts workers if it
// grew.
func (q *hostQueues) adjust(host *hostQueue, took time.Duration, result outcome) {
	if result == untried {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	host.proven = result == succeeded
	host.concurrency = host.concurrency.after(took, host.proven, q.cfg.MaxPerHost)
	for ; host.running < host.concurrency.limit && host.running-1 < len(host.waiting) && !q.closed; host.running++ {
		q.start(func() { q.work(host) })
	}
}

// extendUntil extends the leases of waiting tasks until ctx ends.
func (q *hostQueues) extendUntil(ctx context.Context) {
	for retry.Sleep(ctx, extendInterval) == nil {
		q.extend(time.Now())
	}
}

// extend extends the leases of waiting tasks, each at most every other time.
func (q *hostQueues) extend(now time.Time) {
	var due []*task
	q.mu.Lock()
	for _, host := range q.hosts {
		for _, t := range host.waiting {
			if now.Sub(t.extended) > extendInterval*3/2 {
				t.extended = now
				due = append(due, t)
			}
		}
	}
	q.mu.Unlock()
	for _, t := range due {
		t.Extend()
	}
}

// close releases all tasks that wait, and each that is added from now on.
func (q *hostQueues) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.room.Broadcast()
	for _, host := range q.hosts {
		for _, t := range host.waiting {
			t.Nak(0)
		}
		host.waiting = nil
	}
	q.waiting = 0
}
