package web

import (
	"bufio"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// MaxBody refuses bodies of more than limit bytes with 413, and encoded ones
// with 400: what they unfold to would escape the limit.
func MaxBody(limit int) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if e := c.Get(fiber.HeaderContentEncoding); e != "" && e != "identity" {
			return Errorf(InvalidRequest, "Content-Encoding is not supported; send the body as it is")
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
	if c, ok := conn.(interface{ answersWait() bool }); ok && c.answersWait() {
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
