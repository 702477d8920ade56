package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/ratelimit"
	"flightline/shared/registry"
	"flightline/shared/retry"
	"flightline/shared/web"
)

// boundsInterval is how long the bounds of an endpoint are believed before they are
// computed again: a change of its limits holds after at most that.
const boundsInterval = time.Second

// limits are the gates of this instance, in front of the operations of all
// endpoints. An endpoint that gets no requests costs nothing.
type limits struct {
	table    ratelimit.Table
	registry *registry.Registry
	instance string
	log      *slog.Logger
	clock    ratelimit.Clock
	fleet    atomic.Pointer[fleet]

	operations map[string]*operation
}

// operation is one operation with a gate for each endpoint that was asked
// lately, or all operations with a gate for each key that asked.
type operation struct {
	*limits
	name string
	// subject names what a request counts for, "" for nothing; read returns the
	// bounds of that, nil for none.
	subject func(*fiber.Ctx) string
	read    func(*fiber.Ctx) *bounds

	mu    sync.RWMutex
	gates map[string]*gate // by subject
}

// gate is one operation of one endpoint.
type gate struct {
	ratelimit.Gate
	bounds  atomic.Pointer[bounds]
	looked  atomic.Int64 // when bounds were computed, in ns of limits.clock
	touched atomic.Int64 // when a request last came to it, likewise
}

// bounds are what holds for a gate at present.
type bounds struct {
	whole  ratelimit.Bounds // of all instances together
	share  ratelimit.Bounds // of this one
	policy []byte           // the value of RateLimit-Policy
	fleet  *fleet           // by which they were computed
}

func newLimits(cfg Config, instance string, reg *registry.Registry) *limits {
	begun := time.Now()
	l := &limits{
		table: cfg.Limits, registry: reg, instance: instance, log: cfg.Log,
		clock:      func() time.Duration { return time.Since(begun) },
		operations: map[string]*operation{},
	}
	l.fleet.Store(&fleet{instances: 1})
	for _, name := range ratelimit.Operations() {
		o := &operation{limits: l, name: name, gates: map[string]*gate{}}
		o.subject = func(c *fiber.Ctx) string { return c.Params("endpoint") }
		o.read = o.ofEndpoint
		l.operations[name] = o
	}
	l.operations[ratelimit.Key] = &operation{limits: l, name: ratelimit.Key, gates: map[string]*gate{}, subject: callerID, read: l.ofKey}
	return l
}

// limited lets requests of the operation pass within the bounds of their key and
// of their endpoint; the others get 429. What the key's bounds refuse does not
// count for the endpoint. The operation ratelimit.Key is one without an endpoint.
// It comes after the authentication, so that strangers spend nobody's quota.
func (s *Service) limited(operation string) fiber.Handler {
	if s.limits.table == nil {
		return func(c *fiber.Ctx) error { return c.Next() }
	}
	key, endpoint := s.limits.operations[ratelimit.Key], s.limits.operations[operation]
	return func(c *fiber.Ctx) error {
		var in passage
		var err error
		defer func() {
			if web.LargeAnswer(c) { // it takes memory until the client has read it
				web.AfterAnswer(c, in.leave)
				return
			}
			in.leave()
		}()
		if in.key, err = key.enter(c); err != nil {
			return err
		}
		if operation != ratelimit.Key {
			if in.endpoint, err = endpoint.enter(c); err != nil {
				return err
			}
		}
		c.Locals(entered{}, &in)
		return c.Next()
	}
}

// passage is the gates that a request passed; nil for one without bounds.
type passage struct{ key, endpoint *gate }

// leave counts the request out. Further calls do nothing.
func (p *passage) leave() {
	for _, g := range []*gate{p.key, p.endpoint} {
		if g != nil {
			g.Leave()
		}
	}
	*p = passage{}
}

// entered is where the passage of a request is kept while it is handled.
type entered struct{}

// enter returns the gate that the request passed, nil if it has no bounds, or
// the error that refuses it.
func (o *operation) enter(c *fiber.Ctx) (*gate, error) {
	g := o.gate(c)
	if g == nil {
		return nil, nil //nolint:nilnil // no such endpoint, or it cannot be read: the handler says so
	}
	b := g.bounds.Load()
	if b.share == (ratelimit.Bounds{}) {
		return nil, nil //nolint:nilnil // no bounds are no error
	}
	v := g.Enter(o.clock, b.share)
	if o.name != ratelimit.Key {
		o.writeHeaders(c, b, v)
	}
	if v.Refused != ratelimit.Passed {
		return nil, o.refuse(c, b, v)
	}
	return g, nil
}

// releaseAtEnd is for handlers whose answer is written after their return (a
// body stream): the request counts as one at once until release is called,
// which the writer must do in any case. Further calls of release do nothing.
func releaseAtEnd(c *fiber.Ctx) (release func()) {
	in, _ := c.Locals(entered{}).(*passage)
	if in == nil {
		return func() {}
	}
	kept := *in
	*in = passage{}
	return sync.OnceFunc(kept.leave)
}

// gate returns the gate for the request with its bounds up to date, or nil if
// there is nothing that has bounds.
func (o *operation) gate(c *fiber.Ctx) *gate {
	id := o.subject(c)
	if id == "" {
		return nil
	}
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
	old := now-looked >= int64(boundsInterval) || g.bounds.Load().fleet != o.fleet.Load()
	if old && g.looked.CompareAndSwap(looked, now) {
		if b := o.read(c); b != nil { // one of them; the others go by what it was
			g.bounds.Store(b)
		}
	}
	return g
}

func (o *operation) newGate(c *fiber.Ctx, id string, now int64) *gate {
	b := o.read(c)
	if b == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.gates[id]
	if g == nil {
		g = new(gate)
		g.bounds.Store(b)
		g.looked.Store(now)
		o.gates[strings.Clone(id)] = g // Fiber reuses the memory of parameters
	}
	g.touched.Store(now)
	return g
}

// ofEndpoint reads the bounds of the operation at the request's endpoint.
func (o *operation) ofEndpoint(c *fiber.Ctx) *bounds {
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	e, err := o.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return nil
	}
	return o.boundsOf(e)
}

// callerID names the key of the request.
func callerID(c *fiber.Ctx) string {
	if key := web.Caller(c); key != nil {
		return key.ID
	}
	return ""
}

// ofKey are the bounds of the request's key, shared.
func (l *limits) ofKey(c *fiber.Ctx) *bounds {
	f := l.fleet.Load()
	whole := web.Caller(c).Quota.Bounds(l.table[ratelimit.Key])
	return &bounds{whole: whole, share: whole.Share(f.instances), fleet: f}
}

// caller is the request's key with what of its jobs may wait; without limits
// nothing is counted.
func (l *limits) caller(c *fiber.Ctx) job.Caller {
	key := web.Caller(c)
	if l.table == nil || key == nil {
		return job.Caller{}
	}
	jobs, bytes := key.Quota.MaxWaiting()
	return job.Caller{Key: key.ID, MaxBytes: bytes, MaxJobs: jobs}
}

// boundsOf are the server's, or the endpoint's own, raised and shared.
func (o *operation) boundsOf(e endpoint.Endpoint) *bounds {
	base := o.table[o.name]
	if own, has := e.Limits[o.name]; has {
		base = ratelimit.Bounds{Requests: own.Requests, Concurrent: own.Concurrent}
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
		if now-time.Duration(g.touched.Load()) >= ratelimit.Span && g.Idle(now) {
			delete(o.gates, id)
		}
	}
}

// The header fields of draft-ietf-httpapi-ratelimit-headers, spelled as there.
var (
	headerRateLimit       = []byte("RateLimit")
	headerRateLimitPolicy = []byte("RateLimit-Policy")
)

// policyOf is the value of RateLimit-Policy, "" if nothing is bounded. The unit
// of the second item is the draft's name for what is allowed at once.
func policyOf(operation string, b ratelimit.Bounds) []byte {
	var p []byte
	if b.Requests > 0 {
		p = fmt.Appendf(p, `"%s";q=%d;w=%d`, operation, b.Requests, int(ratelimit.Span/time.Second))
	}
	if b.Concurrent > 0 {
		if p != nil {
			p = append(p, ", "...)
		}
		p = fmt.Appendf(p, `"%s-concurrent";q=%d;qu="concurrent-requests"`, operation, b.Concurrent)
	}
	return p
}

// writeHeaders puts the fields into the answer, whatever else it will be.
func (o *operation) writeHeaders(c *fiber.Ctx, b *bounds, v ratelimit.Verdict) {
	header := &c.Response().Header
	header.SetCanonical(headerRateLimitPolicy, b.policy)
	if b.share.Requests == 0 {
		return
	}
	var buffer [96]byte
	value := append(buffer[:0], '"')
	value = append(value, o.name...)
	value = append(value, `";r=`...)
	value = strconv.AppendInt(value, int64(v.Left), 10)
	value = append(value, ";t="...)
	value = strconv.AppendInt(value, seconds(v.Reset), 10)
	header.SetCanonical(headerRateLimit, value)
}

// refuse answers 429. The text names the bound of all instances together.
func (o *operation) refuse(c *fiber.Ctx, b *bounds, v ratelimit.Verdict) error {
	wait := max(1, seconds(v.Reset))
	if v.Refused == ratelimit.ByConcurrent {
		wait = 1 // any of those under way may end
	}
	c.Set(fiber.HeaderRetryAfter, strconv.FormatInt(wait, 10))
	what, whose := o.name+" requests", "endpoint"
	switch o.name {
	case ratelimit.Key:
		what, whose = "requests", "key"
	case ratelimit.Requests:
		what = "requests to /requests"
	}
	if v.Refused == ratelimit.ByConcurrent {
		return web.Errorf(web.TooManyRequests, "too many %s at once: this %s allows %d", what, whose, b.whole.Concurrent)
	}
	return web.Errorf(web.TooManyRequests, "too many %s: this %s allows %d in 10 s; try again in %d s", what, whose, b.whole.Requests, wait)
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// fleet is who shares the limits, and who raises them: this instance alone until more
// is known.
type fleet struct {
	instances int
	workers   map[string]int // that are up, idle or busy, by endpoint
}

func (f *fleet) equal(other *fleet) bool {
	return f.instances == other.instances && maps.Equal(f.workers, other.workers)
}

// run keeps the fleet up to date and sweeps, until ctx ends. When the registry
// cannot be read, what was known holds.
func (l *limits) run(ctx context.Context) error {
	var peak ratelimit.Peak
	for ctx.Err() == nil {
		f, err := l.readFleet(ctx, &peak)
		switch {
		case err == nil && !f.equal(l.fleet.Load()):
			l.fleet.Store(f) // gates see that it is another one
		case err != nil && ctx.Err() == nil:
			l.log.DebugContext(ctx, "limits go by an old view of the fleet", "err", err)
		}
		for _, o := range l.operations {
			o.sweep(l.clock())
		}
		_ = retry.Sleep(ctx, boundsInterval) // the loop sees the end of ctx
	}
	return nil
}

// readFleet reads who shares the limits now.
func (l *limits) readFleet(ctx context.Context, peak *ratelimit.Peak) (*fleet, error) {
	instances, err := l.registry.Instances.List(ctx)
	workers, werr := l.registry.Workers.List(ctx, "")
	if err = errors.Join(err, werr); err != nil {
		return nil, err
	}
	f := &fleet{workers: map[string]int{}}
	servers := 1 // we may not be in the list yet
	for _, x := range instances {
		if x.Role == instanceRole && x.ID != l.instance {
			servers++
		}
	}
	f.instances = peak.Look(servers)
	for i := range workers {
		if s := workers[i].State; s == registry.WorkerRunning || s == registry.WorkerIdle {
			f.workers[workers[i].Endpoint]++
		}
	}
	return f, nil
}
