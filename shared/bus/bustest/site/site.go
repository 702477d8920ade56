// Package site is a bus with what a service stands on, for tests: the streams,
// a registry and a queue that run, an endpoint and a key. It also serves what a
// test wants to talk to over HTTP.
//
// A test that finds the bus itself broken fails at once, and one whose machine
// is too busy to prepare it tries again; nothing here returns an error for that.
package site

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/bus/bustest"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

// Key is an API key that may do everything.
const Key = "admin-key-of-the-test"

// EndpointID names the endpoint of every site.
const EndpointID = "ep"

// Site is what a test stands on.
type Site struct {
	Bus      *bustest.Bus
	Registry *registry.Registry
	// Queue is on Bus.NC, as is Registry.
	Queue *queue.Queue
	// Endpoint has every setting's default.
	Endpoint endpoint.Endpoint
}

// New makes a site on a bus of its own; all of it runs until the test ends.
func New(t testing.TB) *Site {
	t.Helper()
	ctx, s := t.Context(), &Site{Bus: bustest.New(t)}
	for _, step := range []func() error{
		func() error { return streams.Apply(ctx, s.Bus.JS, streams.Config{}) },
		func() (err error) { s.Registry, err = registry.New(ctx, s.Bus.JS, nil); return err },
		func() (err error) { s.Queue, err = queue.New(ctx, s.Bus.NC, queue.Config{}); return err },
		func() error {
			_, err := s.Registry.Keys.Put(ctx, Key, registry.KeySpec{Scopes: registry.AllScopes()})
			return err
		},
		func() error {
			_, err := s.Registry.Endpoints.Create(ctx, endpoint.Endpoint{ID: EndpointID, Created: time.Now()})
			return made(err)
		},
		func() (err error) { s.Endpoint, err = s.Registry.Endpoints.Get(ctx, EndpointID); return err },
		func() error { return s.Queue.CreateEndpoint(ctx, s.Endpoint) },
	} {
		Again(t, step)
	}
	Background(t, s.Registry.Run)
	Background(t, s.Queue.Run)
	return s
}

// Events opens the log of events.
func (s *Site) Events(t testing.TB) *events.Log {
	t.Helper()
	log, err := events.New(s.Bus.NC, s.Bus.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// Serve answers requests with the app until the test ends, and returns its
// address, as "http://127.0.0.1:1234".
func Serve(t testing.TB, app *fiber.App) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	Background(t, func(ctx context.Context) error { return web.Serve(ctx, app, listener) })
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return "http://" + listener.Addr().String()
}

// Background runs f until the test ends, and waits for its return. An error
// before that fails the test.
func Background(t testing.TB, f func(context.Context) error) {
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
