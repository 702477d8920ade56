package webhook

import (
	"sync"
	"time"

	"flightline/shared/queue"
	"flightline/streams"
)

const (
	// firstLimit is how many attempts at once an origin has that nothing is
	// known of; each success adds one, each failure takes half away.
	firstLimit = 2
	// laneWaiting is how many completions wait for an origin in memory, without
	// their payloads, allWaiting for all together; firstWaiting for one that
	// nothing is known of while others wait too, answeringWaiting at least for
	// one that answers. They are as many as can be: the
	// server is slow to bring back thousands that were sent away.
	firstWaiting, answeringWaiting, laneWaiting, allWaiting = 512, 2000, 10_000, 32_768
	// longestWait is how long a completion may be expected to wait in memory.
	longestWait = 15 * time.Second
	// leastAway and mostAway bound how long one without room stays away.
	leastAway, mostAway = 100 * time.Millisecond, 30 * time.Second
	// staleAfter is when a completion that waited is left for its redelivery:
	// an attempt must end before that.
	staleAfter = streams.WebhookWait / 2
	// manyLanes is how many origins are remembered although nothing waits.
	manyLanes = 4096
)

// order is a completion with where it goes.
type order struct {
	*queue.Completion
	to      target
	arrived time.Time
}

func orderOf(c *queue.Completion) *order {
	return &order{Completion: c, to: targetOf(c.Job.Webhook), arrived: time.Now()}
}

// verdict is what an attempt tells of its origin.
type verdict int

const (
	untried verdict = iota
	answered
	failed
)

// lanes are the origins with what waits for them.
type lanes struct {
	cfg     Config
	deliver func(*order) verdict
	start   func(func())
	slots   chan struct{}

	mu      sync.Mutex
	all     map[string]*lane
	waiting int
	closed  bool
}

// lane is one origin.
type lane struct {
	origin  string
	waiting []*order
	running int
	pace    pace
}

// pace is what is known of an origin.
type pace struct {
	// limit is how many attempts it gets at once.
	limit int
	// took is how long the last ones lasted, the latest counting most; 0 if
	// there was none.
	took time.Duration
	// failing: the last one failed.
	failing bool
}

// wait is how long n completions are expected to take.
func (p pace) wait(n int) time.Duration { return time.Duration(n) * p.took / time.Duration(p.limit) }

// room is how many completions may wait for it while all wait together.
func (p pace) room(all int) int {
	if p.took == 0 && all < allWaiting/4 {
		return laneWaiting
	}
	if p.took == 0 {
		return firstWaiting
	}
	fits := min(int(longestWait*time.Duration(p.limit)/p.took), laneWaiting)
	if p.failing {
		return max(p.limit, fits)
	}
	return max(answeringWaiting, fits) // one slow answer must not send away thousands
}

// away is how long one stays away that finds n waiting and no room: it is back
// before they are gone, or the lane would run dry.
func (p pace) away(n int) time.Duration { return min(max(p.wait(n)/2, leastAway), mostAway) }

// after is the pace once another attempt has ended.
func (p pace) after(took time.Duration, ok bool, most int) pace {
	if p.took > 0 {
		took = (p.took + took) / 2
	}
	p.took, p.failing = max(took, 1), !ok
	if ok {
		p.limit = min(p.limit+1, most)
	} else {
		p.limit = max(p.limit/2, 1)
	}
	return p
}

func newLanes(cfg Config, deliver func(*order) verdict, start func(func())) *lanes {
	return &lanes{cfg: cfg, deliver: deliver, start: start, slots: make(chan struct{}, cfg.AtOnce), all: map[string]*lane{}}
}

// offer takes an order, or gives it back for a while. It does not block.
func (l *lanes) offer(o *order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		o.Later(0)
		return
	}
	at := l.all[o.to.origin]
	if at == nil {
		at = &lane{origin: o.to.origin, pace: pace{limit: min(firstLimit, l.cfg.PerHost)}}
		l.all[at.origin] = at
	}
	n := len(at.waiting)
	if n >= at.pace.room(l.waiting) || l.waiting >= allWaiting && n >= at.pace.limit {
		o.Later(at.pace.away(n))
		return
	}
	at.waiting = append(at.waiting, o)
	l.waiting++
	if at.running < at.pace.limit {
		at.running++
		l.start(func() { l.work(at) })
	}
}

// work delivers what waits in the lane until there is nothing, or too many do.
func (l *lanes) work(at *lane) {
	for {
		l.slots <- struct{}{}
		o := l.take(at)
		if o == nil {
			<-l.slots
			return
		}
		began := time.Now()
		said := l.deliver(o)
		<-l.slots
		l.settle(at, time.Since(began), said)
	}
}

// take removes the oldest order, or reports the worker's end.
func (l *lanes) take(at *lane) *order {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(at.waiting) > 0 && at.running <= at.pace.limit {
		o := at.waiting[0]
		at.waiting[0] = nil
		at.waiting = at.waiting[1:]
		l.waiting--
		if time.Since(o.arrived) < staleAfter {
			return o
		}
	}
	if at.running--; at.running == 0 && len(at.waiting) == 0 && len(l.all) > manyLanes {
		delete(l.all, at.origin)
	}
	return nil
}

// settle learns from an attempt: further workers if it went well, and back to
// the queue with what has no room any more.
func (l *lanes) settle(at *lane, took time.Duration, said verdict) {
	if said == untried {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at.pace = at.pace.after(took, said == answered, l.cfg.PerHost)
	for room := at.pace.room(l.waiting); len(at.waiting) > room; l.waiting-- {
		n := len(at.waiting) - 1
		at.waiting[n].Later(at.pace.away(n))
		at.waiting[n] = nil
		at.waiting = at.waiting[:n]
	}
	for ; at.running < at.pace.limit && at.running-1 < len(at.waiting) && !l.closed; at.running++ {
		l.start(func() { l.work(at) })
	}
}

// close gives back all that waits and takes nothing more.
func (l *lanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, at := range l.all {
		for _, o := range at.waiting {
			o.Later(0)
		}
		at.waiting = nil
	}
}
