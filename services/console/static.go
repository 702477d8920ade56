package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"path"

	"github.com/gofiber/fiber/v2"
)

//go:embed static/*
var static embed.FS

// contentTypes of the files that are served.
var contentTypes = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// serveStatic answers with a file of ours. It needs no session: nothing in them is secret.
func serveStatic(c *fiber.Ctx) error {
	name := c.Params("file")
	data, err := static.ReadFile("static/" + path.Base(name))
	kind, known := contentTypes[path.Ext(name)]
	if err != nil || !known {
		return c.SendStatus(fiber.StatusNotFound)
	}
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	c.Set(fiber.HeaderETag, tag)
	c.Set(fiber.HeaderCacheControl, "no-cache") // asked for again each time, and mostly not sent
	if c.Get(fiber.HeaderIfNoneMatch) == tag {
		return c.SendStatus(fiber.StatusNotModified)
	}
	c.Set(fiber.HeaderContentType, kind)
	return c.Send(data)
}
