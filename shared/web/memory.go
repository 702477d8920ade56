package web

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"golang.org/x/sync/semaphore"

	"flightline/shared/queue"
)

const (
	// SmallBody is how many bytes a request or an answer may take beside the budget.
	// A request may send that much without a key.
	SmallBody = 64 << 10
	// roomTimeout is how long a request waits for room before it is refused, and
	// patientTimeout how long a patient one does.
	roomTimeout, patientTimeout = time.Second, time.Minute
)

// errNoRoom is the answer where there is no room for a body.
var errNoRoom = &Error{Unavailable, "too many large bodies are under way; try again"}

// memory bounds the sum of the large bodies that are in memory at a time, of
// requests and of answers. One key may have half of it.
type memory struct {
	room  *semaphore.Weighted
	share int64 // bytes

	mu   sync.Mutex
	keys map[string]*keyRoom
}

// keyRoom is the share of a key that has claims.
type keyRoom struct {
	key    string // a copy: that of a request is in memory which the next one gets
	room   *semaphore.Weighted
	claims int
}

// newMemory makes a budget of so many bytes, in which one body of largest bytes
// has room in any case.
func newMemory(total, largest int) *memory {
	total = max(total, largest)
	return &memory{
		room: semaphore.NewWeighted(int64(total)), share: int64(max(total/2, largest)),
		keys: map[string]*keyRoom{},
	}
}

// claim is the room that one request has.
type claim struct {
	memory *memory
	of     *keyRoom // nil once it was released
	bytes  int64
	answer bool  // it is for an answer too, with ClaimAnswer
	body   int64 // bytes of it that are the body's
}

// claim makes a claim of no bytes for a request with the key. Its owner calls release.
func (m *memory) claim(key string) *claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.keys[key]
	if of == nil {
		of = &keyRoom{key: strings.Clone(key), room: semaphore.NewWeighted(m.share)}
		m.keys[of.key] = of
	}
	of.claims++
	return &claim{memory: m, of: of}
}

// grow waits a little for room until the claim has so many bytes, which may be
// fewer than it has. It returns errNoRoom if none exists, and keeps what it had.
func (c *claim) grow(bytes int) error {
	return c.growWithin(context.Background(), roomTimeout, bytes)
}

// growWithin is grow with another wait, which ends with ctx too.
func (c *claim) growWithin(ctx context.Context, wait time.Duration, bytes int) error {
	more := min(int64(bytes), c.memory.share) - c.bytes
	if more <= 0 {
		c.shrink(-more)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if c.of.room.Acquire(ctx, more) != nil {
		return errNoRoom
	}
	if c.memory.room.Acquire(ctx, more) != nil {
		c.of.room.Release(more)
		return errNoRoom
	}
	c.bytes += more
	return nil
}

// shrink gives so many bytes back.
func (c *claim) shrink(bytes int64) {
	if bytes > 0 {
		c.memory.room.Release(bytes)
		c.of.room.Release(bytes)
		c.bytes -= bytes
	}
}

// release gives all room back. Further calls do nothing.
func (c *claim) release() {
	if c == nil || c.of == nil {
		return
	}
	c.shrink(c.bytes)
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	if c.of.claims--; c.of.claims == 0 {
		delete(c.memory.keys, c.of.key)
	}
	c.of = nil
}

// localClaim is where a request's claim is kept while it is handled.
type localClaim struct{}

// BodyDone gives back the room that the request's body took. A handler calls
// it when it holds no copy of the body any more and goes on for long.
func BodyDone(c *fiber.Ctx) {
	DropBody(c)
	if held, ok := c.Locals(localClaim{}).(*claim); ok {
		held.release()
	}
}

// DropBody lets go of the request's body, which must not be read afterwards.
func DropBody(c *fiber.Ctx) { c.Request().ResetBody() }

// ClaimAnswer claims room for an answer of so many bytes before they are read, so
// that no work is done for a client that gets no room. It waits for at most 1 s and
// returns an Unavailable. A further call is for an answer of so many bytes in place of the
// former. The room is given back once the answer, or the Stream, is written.
func ClaimAnswer(c *fiber.Ctx, bytes int) error {
	state := stateOf(c)
	held, _ := c.Locals(localClaim{}).(*claim)
	first := held == nil || held.of == nil
	if state == nil || bytes <= SmallBody && (first || !held.answer) {
		return nil
	}
	if first {
		held = state.memory.claim(Key(c))
		c.Locals(localClaim{}, held)
	}
	if !held.answer {
		held.answer, held.body = true, held.bytes
	}
	return held.grow(max(bytes+answerSlack, int(held.body)))
}

// ClaimPayload returns a context with which room for the answer is claimed before a large
// input or output is read. It returns, as the read does, the error of ClaimAnswer.
func ClaimPayload(ctx context.Context, c *fiber.Ctx) context.Context {
	return queue.WithPayloadClaim(ctx, func(bytes int) error { return ClaimAnswer(c, bytes) })
}

// answerSlack is for what an answer has beside an output, in bytes.
const answerSlack = 4 << 10

// boundAnswer claims room for a large answer until it is written, in place of
// what was claimed before. Without room the answer is 503.
func (b *bodies) boundAnswer(ctx *fasthttp.RequestCtx) {
	held, _ := ctx.UserValue(localClaim{}).(*claim)
	if !largeAnswer(&ctx.Response) {
		if held != nil && held.answer && ctx.Response.IsBodyStream() {
			afterAnswer(ctx, held.release)
			return
		}
		held.release()
		return
	}
	if held == nil || held.of == nil {
		held = b.claim(bearer(string(ctx.Request.Header.Peek(fiber.HeaderAuthorization))))
	}
	ctx.Request.ResetBody()
	if err := held.grow(len(ctx.Response.Body())); err != nil {
		held.release()
		ctx.Response.SetBodyRaw(nil) // or its buffer would be kept
		answer(b.app, ctx, err)
		return
	}
	afterAnswer(ctx, held.release)
}

// largeAnswer reports whether the answer counts in the budget.
func largeAnswer(r *fasthttp.Response) bool { return !r.IsBodyStream() && len(r.Body()) > SmallBody }

// afterAnswer calls do once the answer was written, or will not be.
func afterAnswer(ctx *fasthttp.RequestCtx, do func()) {
	if c := connOf(ctx.Conn()); c != nil {
		c.afterAnswer(do)
		return
	}
	do() // no connection of ours
}

// AfterAnswer calls do once the answer is written, or will not be. It is for
// what must be held as long as the client takes to read a LargeAnswer.
func AfterAnswer(c *fiber.Ctx, do func()) { afterAnswer(c.Context(), do) }

// LargeAnswer reports whether the answer has over 64 KiB, and is no Stream.
func LargeAnswer(c *fiber.Ctx) bool { return largeAnswer(c.Response()) }
