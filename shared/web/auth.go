package web

import (
	"context"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/registry"
)

// Keys knows the API keys; *registry.Keys is one.
type Keys interface {
	// Check returns what a key may do, or registry.ErrUnauthorized.
	Check(ctx context.Context, plain string) (registry.Key, error)
}

// Auth lets requests pass whose key allows need, on the endpoint that the
// route calls :endpoint if it has one. The key comes in the Authorization
// header, as "Bearer KEY" or bare. All others get 401: the API does not tell a
// key without the permission from an unknown one.
func Auth(keys Keys, need registry.Permission) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if err := Allow(c, keys, need); err != nil {
			return err
		}
		return c.Next()
	}
}

// Allow is Auth for a handler whose need depends on the request.
func Allow(c *fiber.Ctx, keys Keys, need registry.Permission) error {
	plain := Key(c)
	if plain == "" {
		return registry.ErrUnauthorized
	}
	key, err := keys.Check(c.UserContext(), plain)
	if err != nil {
		return err
	}
	if !key.Allows(c.Params("endpoint"), need) {
		return registry.ErrUnauthorized
	}
	c.Locals(caller{}, &key)
	return nil
}

// caller is where the key of a request is kept.
type caller struct{}

// Caller is the key by which Allow let the request pass, nil before that.
func Caller(c *fiber.Ctx) *registry.Key {
	key, _ := c.Locals(caller{}).(*registry.Key)
	return key
}

// Key is the API key that the request came with, known or not; "" if it came
// with none. It shares the request's memory.
func Key(c *fiber.Ctx) string { return bearer(c.Get(fiber.HeaderAuthorization)) }

// bearer takes the key out of the header's value.
func bearer(value string) string {
	value = strings.TrimSpace(value)
	const scheme = "bearer "
	if len(value) >= len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
		value = strings.TrimSpace(value[len(scheme):])
	}
	return value
}
