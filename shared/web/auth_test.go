package web_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/registry"
	"flightline/shared/web"
)

// keyring is a Keys in memory; how keys are kept is the registry's test.
type keyring map[string]registry.Key

func (k keyring) Check(_ context.Context, plain string) (registry.Key, error) {
	if key, ok := k[plain]; ok {
		return key, nil
	}
	return registry.Key{}, registry.ErrUnauthorized
}

func (k keyring) Known(plain string) bool { return k[plain].Scopes != nil }

func TestAuth(t *testing.T) {
	keys := keyring{
		"submitter": {Scopes: []registry.Scope{{Permission: registry.Submit, Endpoint: "ep1"}}},
		"admin":     {Scopes: []registry.Scope{{Permission: registry.Admin, Endpoint: "*"}}},
		"control":   {Scopes: []registry.Scope{{Permission: registry.Control}}},
	}
	app := web.New(web.Config{})
	ok := func(c *fiber.Ctx) error { return c.JSON(fiber.Map{}) }
	app.Post("/v2/:endpoint/run", web.Auth(keys, registry.Submit), ok)
	app.Get("/v2/:endpoint/status/:id", web.Auth(keys, registry.Read), ok)
	app.Get("/v1/endpoints", web.Auth(keys, registry.Control), ok)
	base := "http://" + serve(t, app)
	tests := map[string]struct {
		method, path, header string
		want                 int
	}{
		"bearer":                    {"POST", "/v2/ep1/run", "Bearer submitter", 200},
		"bare":                      {"POST", "/v2/ep1/run", "submitter", 200},
		"any case of the scheme":    {"POST", "/v2/ep1/run", "bEARER  submitter ", 200},
		"none":                      {"POST", "/v2/ep1/run", "", 401},
		"empty":                     {"POST", "/v2/ep1/run", "Bearer ", 401},
		"unknown":                   {"POST", "/v2/ep1/run", "Bearer nobody", 401},
		"another scheme":            {"POST", "/v2/ep1/run", "Basic submitter", 401},
		"another endpoint":          {"POST", "/v2/ep2/run", "Bearer submitter", 401},
		"another permission":        {"GET", "/v2/ep1/status/1", "Bearer submitter", 401},
		"admin submits":             {"POST", "/v2/ep2/run", "Bearer admin", 200},
		"admin reads":               {"GET", "/v2/ep2/status/1", "Bearer admin", 200},
		"admin does not control":    {"GET", "/v1/endpoints", "Bearer admin", 401},
		"control controls":          {"GET", "/v1/endpoints", "Bearer control", 200},
		"control does not submit":   {"POST", "/v2/ep1/run", "Bearer control", 401},
		"a wrong key and no route":  {"POST", "/v2/ep1/nothing", "Bearer nobody", 404},
		"a wrong key, wrong method": {"GET", "/v2/ep1/run", "Bearer nobody", 405},
	}
	for name, tc := range tests {
		req := request(t, tc.method, base+tc.path, http.NoBody)
		if tc.header != "" {
			req.Header.Set("Authorization", tc.header)
		}
		if got := do(t, req); got.status != tc.want {
			t.Errorf("%s: got %d %v, want %d", name, got.status, got.body, tc.want)
		}
	}
}
