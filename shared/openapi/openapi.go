// Package openapi holds the description of the whole HTTP API in the form of
// OpenAPI 3, and serves it. The file openapi.json is kept by hand; a test in
// e2e/docs compares it with the routes and error codes that there are, and the
// contract scenarios in e2e hold every request and answer against it.
package openapi

import (
	"bytes"
	_ "embed"

	"github.com/gofiber/fiber/v2"
)

// Path is where the description is served.
const Path = "/openapi.json"

//go:embed openapi.json
var document []byte

// JSON returns a copy of the description.
func JSON() []byte { return bytes.Clone(document) }

// Routes serves the description at Path, without a key.
func Routes(app *fiber.App) {
	app.Get(Path, func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
		return c.Send(document)
	})
}
