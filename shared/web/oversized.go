package web

import (
	"errors"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// answerOversized lets the config's own answer go first, unless the body is
// refused for another reason than its size.
func (m *memory) answerOversized(app *fiber.App, ctx *fasthttp.RequestCtx, t *ticket) bool {
	if m.oversized == nil || t != nil && t.refused != nil && !errors.Is(t.refused, fiber.ErrRequestEntityTooLarge) {
		return false
	}
	collapseSlashes(&ctx.Request)
	c := app.AcquireCtx(ctx)
	defer app.ReleaseCtx(c)
	return m.oversized(c)
}
