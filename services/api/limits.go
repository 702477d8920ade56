package api

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/limit"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// lookAgain is how long the bounds of an endpoint are believed before they are
// computed anew: a change of its limits holds after at most that.
const lookAgain = time.Second

// limits are the gates of this instance, in front of the operations of all
// endpoints. An endpoint that gets no requests costs nothing.
type limits struct {
	table    limit.Table
	registry *registry.Registry
	instance string
	log      *slog.Logger
	clock    limit.Clock
	fleet    atomic.Pointer[fleet]

	operations map[string]*operation
}

// operation is one operation with a gate for each endpoint that was asked lately.
type operation struct {
	*limits
	name string

	mu    sync.RWMutex
	gates map[string]*gate // by the endpoint's id
}

// gate is one operation of one endpoint.
type gate struct {
	limit.Gate
	bounds  atomic.Pointer[bounds]
	looked  atomic.Int64 // when bounds were computed, in ns of limits.clock
	touched atomic.Int64 // when a request last came to it, likewise
}

// bounds are what holds for a gate at present.
type bounds struct {
	whole  limit.Bounds // of all instances together
	share  limit.Bounds // of this one
	policy []byte       // the value of RateLimit-Policy
	fleet  *fleet       // by which they were computed
}

func newLimits(cfg Config, reg *registry.Registry) *limits {
	begun := time.Now()
	l := &limits{
		table: cfg.Limits, registry: reg, instance: cfg.Instance, log: cfg.Log,
		clock:      func() time.Duration { return time.Since(begun) },
		operations: map[string]*operation{},
	}
	l.fleet.Store(&fleet{instances: 1})
	for _, name := range limit.Operations() {
		l.operations[name] = &operation{limits: l, name: name, gates: map[string]*gate{}}
	}
	return l
}

// limited lets requests of the operation pass within the bounds of their
// endpoint; the others get 429 and do not count. It comes after the
// authentication, so that strangers spend nobody's quota.
func (s *Service) limited(operation string) fiber.Handler {
	if s.limits.table == nil {
		return func(c *fiber.Ctx) error { return c.Next() }
	}
	return s.limits.operations[operation].pass
}

// entered is where the gate that a request passed is kept while it is handled.
type entered struct{}

func (o *operation) pass(c *fiber.Ctx) error {
	g := o.gate(c)
	if g == nil {
		return c.Next() // no such endpoint, or it cannot be read: the handler says so
	}
	b := g.bounds.Load()
	if b.share == (limit.Bounds{}) {
		return c.Next()
	}
	v := g.Enter(o.clock, b.share)
	o.tell(c, b, v)
	if v.Refused != limit.Passed {
		return o.refuse(c, b, v)
	}
	c.Locals(entered{}, g)
	defer func() {
		if kept, _ := c.Locals(entered{}).(*gate); kept != nil {
			kept.Leave()
		}
	}()
	return c.Next()
}

// releaseAtEnd is for handlers whose answer is written after their return (a
// body stream): the request counts as one at once until release is called,
// which the writer must do in any case. Further calls of release do nothing.
func releaseAtEnd(c *fiber.Ctx) (release func()) {
	g, _ := c.Locals(entered{}).(*gate)
	if g == nil {
		return func() {}
	}
	c.Locals(entered{}, (*gate)(nil))
	return sync.OnceFunc(g.Leave)
}

// gate returns the gate for the request with its bounds up to date, or nil if
// there is no such endpoint.
func (o *operation) gate(c *fiber.Ctx) *gate {
	id := c.Params("endpoint")
	now := int64(o.clock())
	o.mu.RLock()
	g := o.gates[id]
	if g != nil {
		g.touched.Store(now) // beneath the lock: sweep must not take it from us
	}
	o.mu.RUnlock()
	if g == nil {
		return o.newGate(c, id, now)
	}
	looked := g.looked.Load()
	old := now-looked >= int64(lookAgain) || g.bounds.Load().fleet != o.fleet.Load()
	if old && g.looked.CompareAndSwap(looked, now) {
		o.lookAt(c, g, id) // one of them; the others go by what it was
	}
	return g
}

func (o *operation) newGate(c *fiber.Ctx, id string, now int64) *gate {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, err := o.registry.Endpoints.Get(ctx, id)
	if err != nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.gates[e.ID]
	if g == nil {
		g = new(gate)
		g.bounds.Store(o.boundsOf(e))
		g.looked.Store(now)
		o.gates[e.ID] = g
	}
	g.touched.Store(now)
	return g
}

// lookAt computes the bounds anew. They stay what they are if the endpoint
// cannot be read.
func (o *operation) lookAt(c *fiber.Ctx, g *gate, id string) {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	if e, err := o.registry.Endpoints.Get(ctx, id); err == nil {
		g.bounds.Store(o.boundsOf(e))
	}
}

// boundsOf are the server's, or the endpoint's own, raised and shared.
func (o *operation) boundsOf(e endpoint.Endpoint) *bounds {
	base := o.table[o.name]
	if own, has := e.Limits[o.name]; has {
		base = limit.Bounds{Requests: own.Requests, Concurrent: own.Concurrent}
	}
	f := o.fleet.Load()
	whole := base.Raised(f.workers[e.ID], e.RequestsPerWorker)
	return &bounds{whole: whole, share: whole.Share(f.instances), policy: policyOf(o.name, whole), fleet: f}
}

// sweep forgets the gates that nobody needs.
func (o *operation) sweep(now time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, g := range o.gates {
		if now-time.Duration(g.touched.Load()) >= limit.Span && g.Idle(now) {
			delete(o.gates, id)
		}
	}
}
