package web

import (
	"time"

	"github.com/gofiber/fiber/v2"
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
	discardQuiet = 200 * time.Millisecond
	// discardWithin bounds the whole of it.
	discardWithin = 10 * time.Second
)

// discard reads what the client still sends of a body that fasthttp refused.
// Closing the connection over unread data would reset it, and the client would
// see that instead of the answer.
func discard(c *fiber.Ctx) {
	conn := c.Context().Conn()
	if conn == nil {
		return
	}
	buffer := make([]byte, readBufferSize)
	for end := time.Now().Add(discardWithin); time.Now().Before(end); {
		if err := conn.SetReadDeadline(time.Now().Add(discardQuiet)); err != nil {
			return
		}
		if _, err := conn.Read(buffer); err != nil {
			return
		}
	}
}
