package web

import (
	"time"

	"github.com/gofiber/fiber/v2"
)

// observe tells seen about each request, once its answer has a status. The
// route's strings live as long as the app does.
func observe(seen func(method, route string, status int, took time.Duration)) fiber.Handler {
	return func(c *fiber.Ctx) error {
		start := time.Now()
		if err := c.Next(); err != nil {
			if err := c.App().ErrorHandler(c, err); err != nil {
				return err
			}
		}
		r := c.Route()
		seen(r.Method, r.Path, c.Response().StatusCode(), time.Since(start))
		return nil
	}
}
