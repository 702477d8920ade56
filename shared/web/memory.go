package web

import (
	"context"
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"golang.org/x/sync/semaphore"

	"flightline/shared/registry"
)

const (
	// smallBody is what any request may send without being asked: with no key,
	// and beside the budget.
	smallBody = 64 << 10
	// roomWithin is how long a request waits for room before it is refused.
	roomWithin = time.Second
)

// memory bounds the sum of the large bodies that are in memory at a time.
// fasthttp makes room for the whole of a body before it reads its first byte,
// so a body's room is taken when its header has been read.
type memory struct {
	room      *semaphore.Weighted
	total     int64 // bytes
	bodyLimit int
	reading   time.Duration // a body is read within, or not at all
	oversized func(*fiber.Ctx) bool

	count   atomic.Int64 // of tickets
	mu      sync.Mutex
	tickets map[*fasthttp.RequestHeader]*ticket // fasthttp hands around nothing else
}

// ticket is what a request with a large body got.
type ticket struct {
	memory  *memory
	bytes   int64 // taken of the room; guarded by memory.mu
	refused error // why its body is not read, nil if it is
	// read means that the request is with its handler, which gives the ticket
	// back. Before that, only the read deadline is sure to come.
	read  bool
	until time.Time
}

func newMemory(total, bodyLimit int, reading time.Duration) *memory {
	return &memory{
		room: semaphore.NewWeighted(int64(total)), total: int64(total), bodyLimit: bodyLimit, reading: reading,
		tickets: map[*fasthttp.RequestHeader]*ticket{},
	}
}

// errNoRoom is the answer to a body for which there is no room.
var errNoRoom = &Error{Unavailable, "too many large bodies are under way; try again"}

// admit is fasthttp's HeaderReceived: it decides whether the body will be read.
func (m *memory) admit(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
	size := header.ContentLength() // -1: chunked
	if size <= smallBody && size != -1 {
		return fasthttp.RequestConfig{}
	}
	t := &ticket{memory: m, until: time.Now().Add(m.reading)}
	switch {
	case len(header.Peek(fiber.HeaderAuthorization)) == 0:
		t.refused = registry.ErrUnauthorized
	case size > m.bodyLimit:
		t.refused = fiber.ErrRequestEntityTooLarge
	case !m.take(t, size):
		t.refused = errNoRoom
	}
	if t.refused != nil {
		header.Del(fiber.HeaderExpect) // or fasthttp would ask for it first
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if lost := m.tickets[header]; lost != nil {
		m.release(lost, 0) // of a connection before this one
	}
	m.tickets[header] = t
	m.count.Store(int64(len(m.tickets)))
	if t.refused != nil {
		return fasthttp.RequestConfig{MaxRequestBodySize: smallBody} // a chunked one may prove to be small
	}
	return fasthttp.RequestConfig{ReadTimeout: m.reading}
}

// take waits a little for room; in the meantime nothing is read, and the client
// cannot send. A body of unknown size takes that of the largest there may be.
func (m *memory) take(t *ticket, size int) bool {
	if size == -1 {
		size = m.bodyLimit
	}
	bytes := m.needed(size)
	if !m.room.TryAcquire(bytes) {
		m.sweep(time.Now())
		ctx, cancel := context.WithTimeout(context.Background(), roomWithin)
		defer cancel()
		if m.room.Acquire(ctx, bytes) != nil {
			return false
		}
	}
	t.bytes = bytes
	return true
}

// needed is what a body takes: fasthttp rounds its buffer up to a power of two.
func (m *memory) needed(size int) int64 {
	return min(int64(1)<<bits.Len64(uint64(size-1)), m.total) //nolint:gosec // a size over smallBody is positive
}

// sweep gives back what requests took that ended without a word: fasthttp tells
// nobody of a client that went while it was asked to go on (100 Continue).
func (m *memory) sweep(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for header, t := range m.tickets {
		if !t.read && now.After(t.until) {
			delete(m.tickets, header)
			m.release(t, 0)
		}
	}
	m.count.Store(int64(len(m.tickets)))
}

// arrived says that the request was read and is going to its handler. It
// returns the ticket, nil if there is none, with the room that is needed now.
func (m *memory) arrived(r *fasthttp.Request) *ticket {
	if m.count.Load() == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tickets[&r.Header]
	if t == nil {
		return nil
	}
	t.read = true
	if size := len(r.Body()); size > smallBody {
		m.release(t, m.needed(size))
	} else {
		m.release(t, 0)
	}
	return t
}

// leave forgets the request and returns its ticket, nil if there is none.
func (m *memory) leave(header *fasthttp.RequestHeader) *ticket {
	if m.count.Load() == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tickets[header]
	if t == nil {
		return nil
	}
	delete(m.tickets, header)
	m.count.Store(int64(len(m.tickets)))
	m.release(t, 0)
	return t
}

// release gives room back until only keep bytes of it are taken; mu must be held.
func (m *memory) release(t *ticket, keep int64) {
	if t.bytes > keep {
		m.room.Release(t.bytes - keep)
		t.bytes = keep
	}
}

// localTicket is where a request's ticket is kept while it is handled.
type localTicket struct{}

// handle gives the room of a body back when its request was handled.
func (m *memory) handle(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		t := m.arrived(&ctx.Request)
		if t == nil {
			next(ctx)
			return
		}
		ctx.SetUserValue(localTicket{}, t)
		defer func() {
			dropBody(&ctx.Request)
			m.leave(&ctx.Request.Header)
		}()
		next(ctx)
	}
}

// refusal answers what could not be read: by the reason why it was not, or
// else as Fiber does.
func (m *memory) refusal(app *fiber.App, next func(*fasthttp.RequestCtx, error)) func(*fasthttp.RequestCtx, error) {
	return func(ctx *fasthttp.RequestCtx, err error) {
		t := m.leave(&ctx.Request.Header)
		if c, ok := ctx.Conn().(interface{ silent() bool }); ok && c.silent() {
			_ = ctx.Conn().Close() // fasthttp's answer to no request goes nowhere
			return
		}
		tooLarge := errors.Is(err, fasthttp.ErrBodyTooLarge)
		switch {
		case tooLarge && m.answerOversized(app, ctx, t):
		case t != nil && t.refused != nil && tooLarge:
			answer(app, ctx, t.refused)
		default:
			next(ctx, err)
		}
		if tooLarge {
			answerAndDiscard(ctx)
		}
	}
}

// answer is what a handler's error would be answered with.
func answer(app *fiber.App, ctx *fasthttp.RequestCtx, err error) {
	c := app.AcquireCtx(ctx)
	defer app.ReleaseCtx(c)
	if app.ErrorHandler(c, err) != nil {
		ctx.SetStatusCode(fiber.StatusInternalServerError)
	}
}

// BodyDone gives back the room that the request's body took. A handler calls
// it when it holds no copy of the body any more and goes on for long.
func BodyDone(c *fiber.Ctx) {
	DropBody(c)
	t, _ := c.Locals(localTicket{}).(*ticket)
	if t == nil {
		return
	}
	t.memory.mu.Lock()
	defer t.memory.mu.Unlock()
	t.memory.release(t, 0)
}

// DropBody lets go of the request's body, which must not be read afterwards.
func DropBody(c *fiber.Ctx) { dropBody(c.Request()) }

// dropBody keeps large buffers out of fasthttp's pool, where they would serve
// small bodies for ever.
func dropBody(r *fasthttp.Request) {
	if len(r.Body()) > smallBody {
		r.SwapBody(nil)
	}
	r.ResetBody()
}
