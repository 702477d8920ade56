// Package docs holds the tests that keep those documents true which concern
// more than one package. What they say is read off the running services and
// the source, not told twice.
package docs

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/services/api"
	"flightline/services/control"
	"flightline/services/gateway"
	"flightline/shared/openapi"
	"flightline/shared/registry"
	"flightline/shared/testenv/backend"
	"flightline/shared/web"
)

// env is everything that serves HTTP, on a port of its own, with a key for
// each permission; "" is the key of a client that sends none.
type env struct {
	app   *fiber.App
	roles map[string]routed // by name
	base  string
	keys  map[registry.Permission]string
}

// routed has routes.
type routed interface{ Routes(*fiber.App) }

// all is the name of the key that may do everything, anyKey stands for each that there is, and
// ofWorker is the name of the
// token of the worker for which concrete paths are.
const all, anyKey, ofWorker = "all", "any key", "a worker's token"

func start(t *testing.T) *env {
	t.Helper()
	at := backend.New(t)
	s := &env{app: web.New(web.Config{}), keys: keysOf(t, at.Registry)}
	log := at.Events(t)
	queueAPI, err := api.New(api.Config{}, api.Deps{Queue: at.Queue, Registry: at.Registry, Events: log})
	if err != nil {
		t.Fatal(err)
	}
	controlAPI, err := control.New(control.Config{}, control.Deps{Queue: at.Queue, Registry: at.Registry, Events: log})
	if err != nil {
		t.Fatal(err)
	}
	workers, err := gateway.New(gateway.Config{Hold: time.Millisecond}, gateway.Deps{Queue: at.Queue, Registry: at.Registry})
	if err != nil {
		t.Fatal(err)
	}
	web.NewHealth("", nil).Routes(s.app)
	openapi.Routes(s.app)
	s.roles = map[string]routed{"api": queueAPI, "control": controlAPI, "gateway": workers}
	for _, name := range []string{"api", "control", "gateway"} { // the first that matches answers
		s.roles[name].Routes(s.app)
	}
	s.base = backend.Serve(t, s.app)
	return s
}

func keysOf(t *testing.T, reg *registry.Registry) map[registry.Permission]string {
	t.Helper()
	keys := map[registry.Permission]string{"": ""}
	for name, scopes := range map[registry.Permission][]registry.Scope{
		registry.Submit:  {{Permission: registry.Submit, Endpoint: registry.AllEndpoints}},
		registry.Read:    {{Permission: registry.Read, Endpoint: registry.AllEndpoints}},
		registry.Admin:   {{Permission: registry.Admin, Endpoint: registry.AllEndpoints}},
		registry.Control: {{Permission: registry.Control}},
		registry.LookUp:  {{Permission: registry.LookUp}},
		all:              registry.AllScopes(),
	} {
		plain, _, err := reg.Keys.Create(t.Context(), registry.KeySpec{Name: string(name), Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = plain
	}
	token, _, err := reg.Tokens.Issue(t.Context(), "nobody", "noone")
	if err != nil {
		t.Fatal(err)
	}
	keys[ofWorker] = token
	return keys
}

// ask sends a request and returns its status and body.
func (s *env) ask(t *testing.T, method, path, body string, as registry.Permission) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key := s.keys[as]; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}
