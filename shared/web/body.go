package web

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"flightline/shared/registry"
)

// MaxBody refuses bodies of more than limit bytes with 413, and encoded ones
// with 400: what they unfold to would escape the limit.
func MaxBody(limit int) fiber.Handler {
	return func(c *fiber.Ctx) error {
		for _, encoding := range c.Request().Header.PeekAll(fiber.HeaderContentEncoding) {
			if len(encoding) > 0 && string(encoding) != "identity" {
				return Errorf(InvalidRequest, "Content-Encoding is not supported, got %.50q; send the body as it is", encoding)
			}
		}
		if size := len(c.Request().Body()); size > limit {
			return Errorf(BodyTooLarge, "the body has %d bytes; at most %d are allowed here", size, limit)
		}
		return c.Next()
	}
}

const (
	// discardQuiet is how long the rest of a refused body may pause.
	discardQuiet = 2 * time.Second
	// discardWithin bounds the whole of it.
	discardWithin = 10 * time.Second
	discardBuffer = 16 << 10
)

// answerAndDiscard sends the answer at once, then reads what the client still
// sends of a body that is not wanted, and closes the connection. To close it
// over unread data would reset it, and the client might see that instead of
// the answer. Behind answers that are not written yet it does no more than to end
// the connection.
func answerAndDiscard(ctx *fasthttp.RequestCtx) {
	conn := ctx.Conn()
	if c := connOf(conn); c != nil && c.pipelined {
		ctx.Response.SetConnectionClose()
		return
	}
	defer conn.Close() //nolint:errcheck // fasthttp writes the answer again and fails: nobody must see it twice
	ctx.Response.SetConnectionClose()
	w := bufio.NewWriter(conn)
	if ctx.Response.Write(w) != nil || w.Flush() != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() != nil {
		return
	}
	buffer := make([]byte, discardBuffer)
	for end := time.Now().Add(discardWithin); time.Now().Before(end); {
		if err := conn.SetReadDeadline(time.Now().Add(discardQuiet)); err != nil {
			return
		}
		if _, err := conn.Read(buffer); err != nil {
			return
		}
	}
}

// bodies reads the bodies of requests before they are handled. fasthttp leaves
// that to it: what fasthttp reads by itself has memory for its whole length at
// once, also for a client without a key.
type bodies struct {
	*memory
	app       *fiber.App
	limit     int // of a body
	known     func(*fiber.Ctx) error
	patient   func(*fiber.Ctx) bool
	oversized func(*fiber.Ctx) bool
}

// smallBuffer is the buffer for a body that may be small: one more byte shows that it is not.
const smallBuffer = SmallBody + 1

// smallBuffers are for bodies of up to SmallBody bytes.
var smallBuffers = sync.Pool{New: func() any { return new([]byte) }}

// handle reads the body, then has the request handled.
func (b *bodies) handle(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if !ctx.Request.IsBodyStream() {
			next(ctx)
			b.boundAnswer(ctx)
			return
		}
		buffer := smallBuffers.Get().(*[]byte) //nolint:forcetypeassert // we put nothing else
		r := reading{bodies: b, ctx: ctx, size: ctx.Request.Header.ContentLength(), body: (*buffer)[:0]}
		defer func() {
			ctx.Request.ResetBody()
			smallBuffers.Put(buffer)
		}()
		if err := r.read(buffer); err != nil {
			r.claim.release()
			b.refuse(ctx, err)
			return
		}
		if read := time.Now(); read.Sub(ctx.Time()) > slowBody {
			ctx.SetUserValue(localRead{}, read)
		}
		ctx.Request.SetBodyRaw(r.body)
		r.body = nil // handlers let go of it
		if r.claim != nil {
			ctx.SetUserValue(localClaim{}, r.claim)
		}
		next(ctx)
		b.boundAnswer(ctx)
	}
}

// localRead is where it is kept when the body of a request was read to its end, if that
// took longer than slowBody.
type localRead struct{}

// slowBody is less than matters to the time that a request has for its calls.
const slowBody = 100 * time.Millisecond

// readAt is when the request was read. fasthttp's time is that of its header.
func readAt(c *fiber.Ctx) time.Time {
	if at, slow := c.Locals(localRead{}).(time.Time); slow {
		return at
	}
	return c.Context().Time()
}

// reading is a body that is being read.
type reading struct {
	*bodies
	ctx   *fasthttp.RequestCtx
	size  int // as announced, -1 if it was not
	body  []byte
	claim *claim // of a body that proved large, nil before
	pace  pace   // of a large body
}

// read reads the body to its end, into the buffer while it is small.
func (r *reading) read(buffer *[]byte) error {
	stream := r.ctx.RequestBodyStream()
	if r.size > SmallBody {
		if err := r.admit(); err != nil {
			return err
		}
	}
	for {
		if err := r.prepare(buffer); err != nil {
			return err
		}
		n, err := stream.Read(r.body[len(r.body):cap(r.body)])
		r.body = r.body[:len(r.body)+n]
		if r.claim != nil {
			r.pace.advance(n, time.Now())
		}
		switch {
		case len(r.body) > r.limit:
			return fiber.ErrRequestEntityTooLarge
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// prepare makes room for the next bytes, and sets by when they must come.
func (r *reading) prepare(buffer *[]byte) error {
	if len(r.body) == cap(r.body) && len(r.body) != r.size {
		if err := r.extend(); err != nil {
			return err
		}
		if cap(r.body) <= smallBuffer {
			*buffer = r.body
		}
	}
	if r.claim == nil {
		return nil
	}
	return r.ctx.Conn().SetReadDeadline(r.pace.deadline)
}

// extend makes room for more of the body. Memory follows what has come: four
// times as much each time, and no more than was announced.
func (r *reading) extend() error {
	const least, factor = 4 << 10, 4
	size := max(least, factor*cap(r.body))
	if cap(r.body) < smallBuffer {
		r.body = append(make([]byte, 0, min(max(size, r.size), smallBuffer)), r.body...)
		return nil
	}
	if r.claim == nil {
		if err := r.admit(); err != nil {
			return err
		}
	}
	size = min(size, r.limit+1)
	if r.size >= 0 {
		size = min(size, r.size)
	}
	if err := r.claim.grow(max(size, int(r.claim.bytes))); err != nil { // a patient one has all of it
		return err
	}
	r.body = append(make([]byte, 0, size), r.body...)
	return nil
}

// admit decides whether a large body is read, and begins its claim.
func (r *reading) admit() error {
	if err := r.allow(r.ctx, r.size); err != nil {
		return err
	}
	r.claim = r.memory.claim(bearer(string(r.ctx.Request.Header.Peek(fiber.HeaderAuthorization))))
	var err error
	if r.size >= 0 && r.patient != nil && callConfig(r.bodies, r.ctx, r.patient) {
		// All of it at once: those that wait with a part would keep each other waiting.
		err = r.claim.growWithin(r.ctx, patientTimeout, r.size)
	}
	r.pace = newPace(time.Now())
	return err
}

// allow refuses a large body without a good key, or over the limit.
func (b *bodies) allow(ctx *fasthttp.RequestCtx, size int) error {
	if b.known == nil && len(ctx.Request.Header.Peek(fiber.HeaderAuthorization)) == 0 {
		return registry.ErrUnauthorized
	}
	if b.known != nil {
		if err := callConfig(b, ctx, b.known); err != nil {
			return err
		}
	}
	if size > b.limit {
		return fiber.ErrRequestEntityTooLarge
	}
	return nil
}

// header is fasthttp's HeaderReceived. Of a large body fasthttp then waits for
// no more than the first byte before the body is judged.
func (b *bodies) header(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if h.ContentLength() > SmallBody {
		return fasthttp.RequestConfig{MaxRequestBodySize: 1}
	}
	return fasthttp.RequestConfig{}
}

// expect is fasthttp's ExpectHandler: it answers before a large body is sent
// that would be refused.
func (b *bodies) expect(ctx *fasthttp.RequestCtx) int {
	size := ctx.Request.Header.ContentLength()
	if size <= SmallBody {
		return fasthttp.StatusContinue
	}
	err := b.allow(ctx, size)
	if err == nil {
		probe := b.claim(bearer(string(ctx.Request.Header.Peek(fiber.HeaderAuthorization))))
		defer probe.release()
		err = probe.grow(min(size, b.limit))
	}
	if err == nil {
		return fasthttp.StatusContinue
	}
	b.answer(ctx, err)
	return ctx.Response.StatusCode()
}

// refuse answers a body that was not read to its end, and ends the connection.
func (b *bodies) refuse(ctx *fasthttp.RequestCtx, err error) {
	b.answer(ctx, err)
	answerAndDiscard(ctx)
}

// answer answers a body that is not read.
func (b *bodies) answer(ctx *fasthttp.RequestCtx, err error) {
	if errors.Is(err, fiber.ErrRequestEntityTooLarge) && b.oversized != nil && callConfig(b, ctx, b.oversized) {
		return // by the config's own answer
	}
	err = unread(err)
	if errors.Is(err, fiber.ErrRequestEntityTooLarge) {
		err = Errorf(BodyTooLarge, "the body has more than %d bytes, which no route allows", b.limit)
	}
	answer(b.app, ctx, err)
}

// callConfig is what a function of the config says of a request whose body is not read.
func callConfig[T any](b *bodies, ctx *fasthttp.RequestCtx, say func(*fiber.Ctx) T) T {
	normalizePath(&ctx.Request)
	c := b.app.AcquireCtx(ctx)
	defer b.app.ReleaseCtx(c)
	return say(c)
}

// unread gives what ended the reading of a body the form of an answer.
func unread(err error) error {
	if answerOf(err).Code != Internal { // also a call that took too long, which is a net.Error too
		return err
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return fiber.ErrRequestTimeout
	}
	return fiber.ErrBadRequest // broken chunks, or the client went
}

// answer is what a handler's error would be answered with.
func answer(app *fiber.App, ctx *fasthttp.RequestCtx, err error) {
	c := app.AcquireCtx(ctx)
	defer app.ReleaseCtx(c)
	if app.ErrorHandler(c, err) != nil {
		ctx.SetStatusCode(fiber.StatusInternalServerError)
	}
}

// refusal answers a request whose header could not be read. A connection that
// sent nothing ends without an answer.
func refusal(next func(*fasthttp.RequestCtx, error)) func(*fasthttp.RequestCtx, error) {
	return func(ctx *fasthttp.RequestCtx, err error) {
		if c := connOf(ctx.Conn()); c != nil && !c.active {
			_ = ctx.Conn().Close() // fasthttp's answer to no request goes nowhere
			return
		}
		next(ctx, err)
	}
}
