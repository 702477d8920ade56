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
	// allWaiting is how many completions wait in memory, allBytes how many bytes
	// of payloads they have with them: the others' are read before the post.
	allWaiting, allBytes = 65_536, 64 << 20
	// longestHold is how long any origin may be expected to take if reading
	// waits for room; if one takes longer, half of what waits for it is sent away.
	longestHold = 30 * time.Second
	// lookAgain is how long reading waits before the origins are looked at again.
	lookAgain = 100 * time.Millisecond
	// leastAway and mostAway bound how long a completion is sent away.
	leastAway, mostAway = time.Second, 5 * time.Minute
	// extendEvery is how often the queue is told what is in hand.
	extendEvery = streams.WebhookWait / 8
	// staleAfter is when a completion of which the queue was not told is left
	// for its redelivery: an attempt must end before that.
	staleAfter = streams.WebhookWait / 2
	// manyLanes is how many origins are remembered although nothing waits.
	manyLanes = 4096
)

// order is a completion with where it goes.
type order struct {
	*queue.Completion
	to target
	// held is when the queue knew last that it is in hand.
	held time.Time
	size int
}

func orderOf(c *queue.Completion, to target) *order {
	return &order{Completion: c, to: to, held: time.Now(), size: c.Size()}
}

// shed leaves the payload to the queue.
func (o *order) shed() {
	o.Shed()
	o.to, o.size = targetOf(o.Job.Webhook), 0
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

	mu             sync.Mutex
	room           *sync.Cond // less waits, or it is closed
	all            map[string]*lane
	waiting, bytes int
	closed         bool
}

// lane is one origin.
type lane struct {
	origin  string
	waiting []*order
	running int
	pace    pace
	// away is about how many were sent away and are not back.
	away int
}

func newLanes(cfg Config, deliver func(*order) verdict, start func(func())) *lanes {
	l := &lanes{cfg: cfg, deliver: deliver, start: start, slots: make(chan struct{}, cfg.AtOnce), all: map[string]*lane{}}
	l.room = sync.NewCond(&l.mu)
	return l
}

// offer takes an order. It waits while there is no room.
func (l *lanes) offer(o *order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.makeRoom()
	if l.closed {
		o.Later(0)
		return
	}
	at := l.all[o.to.origin]
	if at == nil {
		at = &lane{origin: o.to.origin, pace: pace{limit: min(firstLimit, l.cfg.PerHost), since: time.Now()}}
		l.all[at.origin] = at
	}
	if !o.Fresh {
		at.away = max(at.away-1, 0)
	}
	if l.bytes+o.size > l.cfg.bytes {
		o.shed()
	}
	at.waiting = append(at.waiting, o)
	l.waiting++
	l.bytes += o.size
	if at.running < at.pace.limit {
		at.running++
		l.start(func() { l.work(at) })
	}
}

// makeRoom returns when another one may wait, or at the end. The origin that
// is expected to take longest makes room, unless all are soon done.
func (l *lanes) makeRoom() {
	for l.waiting >= l.cfg.waiting && !l.closed {
		var slowest *lane
		var takes time.Duration
		for _, at := range l.all {
			if d := at.pace.wait(len(at.waiting)); d >= takes {
				slowest, takes = at, d
			}
		}
		if takes <= longestHold {
			again := time.AfterFunc(lookAgain, l.room.Broadcast)
			l.room.Wait()
			again.Stop()
			continue
		}
		l.sendAway(slowest)
	}
}

// sendAway gives half of a lane back to the queue, each for half of the time
// in which its turn is expected: so the lane does not run dry, and few come
// back in vain.
func (l *lanes) sendAway(at *lane) {
	keep := len(at.waiting) / 2
	for i, o := range at.waiting[keep:] {
		at.away++
		o.Later(min(max(at.pace.wait(keep+at.away)/2, leastAway), mostAway))
		l.waiting--
		l.bytes -= o.size
		at.waiting[keep+i] = nil
	}
	at.waiting = at.waiting[:keep]
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
		l.bytes -= o.size
		l.room.Signal()
		if time.Since(o.held) < staleAfter {
			return o
		}
	}
	if at.running--; at.running == 0 && len(at.waiting) == 0 && len(l.all) > manyLanes {
		delete(l.all, at.origin)
	}
	return nil
}

// settle learns from an attempt: further workers if it went well.
func (l *lanes) settle(at *lane, took time.Duration, said verdict) {
	if said == untried {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at.pace = at.pace.after(took, said == answered, l.cfg.PerHost)
	for ; at.running < at.pace.limit && at.running-1 < len(at.waiting) && !l.closed; at.running++ {
		l.start(func() { l.work(at) })
	}
}

// extend tells the queue which completions are still in hand, of each not
// oftener than every other time.
func (l *lanes) extend(now time.Time) {
	var all []*order
	l.mu.Lock()
	for _, at := range l.all {
		for _, o := range at.waiting {
			if now.Sub(o.held) > extendEvery*3/2 {
				o.held = now
				all = append(all, o)
			}
		}
	}
	l.mu.Unlock()
	for _, o := range all {
		o.Extend()
	}
}

// close gives back all that waits and takes nothing more.
func (l *lanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.room.Broadcast()
	for _, at := range l.all {
		for _, o := range at.waiting {
			o.Later(0)
		}
		at.waiting = nil
	}
	l.waiting, l.bytes = 0, 0
}
