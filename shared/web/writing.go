package web

import (
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

const (
	// writeTimeout is how long a client may take nothing of a small answer, or of a
	// piece of a streamed one.
	writeTimeout = 30 * time.Second
	// writeDeadlineSlack is by how much the deadline of a small write may be
	// earlier, so that it is not set for each.
	writeDeadlineSlack = 5 * time.Second
)

// Write implements net.Conn. The client must take a large answer at the least
// rate, and a small one within 30 s.
func (c *conn) Write(p []byte) (int, error) {
	now := time.Now()
	if len(p) <= SmallBody {
		if c.writeUntil.Sub(now) < writeTimeout-writeDeadlineSlack {
			if err := c.setWriteDeadline(now.Add(writeTimeout)); err != nil {
				return 0, err
			}
		}
		return c.Conn.Write(p)
	}
	for written := 0; ; {
		if err := c.setWriteDeadline(time.Now().Add(paceTimeout)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:min(len(p), written+pacePart)])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

func (c *conn) setWriteDeadline(deadline time.Time) error {
	c.writeUntil = deadline
	return c.SetWriteDeadline(deadline)
}

// ClaimAnswer claims room for an answer of so many bytes before they are read, so
// that no work is done for a client that gets no room. It waits for at most 1 s and
// returns an Unavailable. The room is given back once the answer is written.
func ClaimAnswer(c *fiber.Ctx, bytes int) error {
	state := stateOf(c)
	if bytes <= SmallBody || state == nil {
		return nil
	}
	held, _ := c.Locals(localClaim{}).(*claim)
	if held == nil || held.of == nil {
		held = state.memory.claim(Key(c))
		c.Locals(localClaim{}, held)
	}
	return held.grow(max(bytes+answerSlack, int(held.bytes)))
}

// answerSlack is for what an answer has beside an output, in bytes.
const answerSlack = 4 << 10

// boundAnswer claims room for a large answer until it is written, in place of
// what was claimed before. Without room the answer is 503.
func (b *bodies) boundAnswer(ctx *fasthttp.RequestCtx) {
	held, _ := ctx.UserValue(localClaim{}).(*claim)
	if !largeAnswer(&ctx.Response) {
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
	if c, ok := ctx.Conn().(interface{ afterAnswer(func()) }); ok {
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
