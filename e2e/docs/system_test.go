// Package docs holds the tests that keep those documents true which concern
// more than one package. What they say is read off the running services and
// the source, not told twice.
package docs

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/services/api"
	"flightline/services/control"
	"flightline/shared/bus/bustest"
	"flightline/shared/events"
	"flightline/shared/openapi"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

// system is everything that serves HTTP, on a port of its own, with a key for
// each permission; "" is the key of a client that sends none.
type system struct {
	app  *fiber.App
	base string
	keys map[registry.Permission]string
}

// all is the name of the key that may do everything.
const all = "all"

func start(t *testing.T) *system {
	t.Helper()
	b := bustest.New(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	reg, err := registry.New(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.New(t.Context(), b.NC, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &system{app: web.New(web.Config{}), keys: keysOf(t, reg)}
	log, err := events.New(b.NC, b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	queueAPI, err := api.New(api.Config{}, api.Deps{Queue: q, Registry: reg, Events: log})
	if err != nil {
		t.Fatal(err)
	}
	controlAPI, err := control.New(control.Config{}, control.Deps{Queue: q, Registry: reg, Events: log})
	if err != nil {
		t.Fatal(err)
	}
	openapi.Routes(s.app)
	queueAPI.Routes(s.app)
	controlAPI.Routes(s.app)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.base = "http://" + listener.Addr().String()
	background(t, reg.Run)
	background(t, q.Run)
	background(t, func(ctx context.Context) error { return web.Serve(ctx, s.app, listener) })
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
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
		all:              registry.AllScopes(),
	} {
		plain, _, err := reg.Keys.Create(t.Context(), registry.KeySpec{Name: string(name), Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = plain
	}
	return keys
}

// background runs f until the test ends, and waits for its return.
func background(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// ask sends a request and returns its status and body.
func (s *system) ask(t *testing.T, method, path, body string, as registry.Permission) (int, string) {
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
