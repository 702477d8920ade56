package control

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/registry"
	"flightline/shared/web"
)

func keyViewOf(k registry.Key) api.Key {
	scopes := make([]string, len(k.Scopes))
	for i, scope := range k.Scopes {
		scopes[i] = scope.String()
	}
	return api.Key{ID: k.ID, Name: k.Name, Scopes: scopes, Last4: k.Last4, Created: k.Created, Quota: k.Quota}
}

func (s *Service) createKey(c *fiber.Ctx) error {
	body, err := bindOwn[api.KeySpec](c)
	if err != nil {
		return err
	}
	scopes, err := registry.ParseScopes(body.Scopes)
	if err != nil {
		return err
	}
	plain, key, err := s.registry.Keys.Create(c.UserContext(), registry.KeySpec{Name: body.Name, Scopes: scopes, Quota: body.Quota})
	if err != nil {
		return err
	}
	view := keyViewOf(key)
	view.Plain = plain
	return c.JSON(view)
}

func (s *Service) listKeys(c *fiber.Ctx) error {
	keys, err := s.registry.Keys.List(c.UserContext())
	if err != nil {
		return err
	}
	return answerList(c, keys, keyViewOf)
}

// ownKey answers the key that asks.
func ownKey(c *fiber.Ctx) error { return c.JSON(keyViewOf(*web.Caller(c))) }

func (s *Service) updateKey(c *fiber.Ctx) error {
	body, err := bindOwn[api.KeyChange](c)
	if err != nil {
		return err
	}
	if body.Quota == nil {
		return web.Errorf(web.InvalidRequest, "quota is required and must be an object")
	}
	key, err := s.registry.Keys.ChangeQuota(c.UserContext(), strings.Clone(c.Params("id")), body.Quota)
	if err != nil {
		return noThing(err, "key")
	}
	return c.JSON(keyViewOf(key))
}

func (s *Service) revokeKey(c *fiber.Ctx) error {
	return noContent(c, noThing(s.registry.Keys.Revoke(c.UserContext(), strings.Clone(c.Params("id"))), "key"))
}
