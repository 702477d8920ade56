package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/go-cmp/cmp"

	"flightline/shared/web"
)

type healthAnswer struct {
	Code    int               `json:"-"`
	Status  string            `json:"status"`
	Version string            `json:"version"`
	Roles   []string          `json:"roles"`
	Checks  map[string]string `json:"checks"`
}

func askHealth(t *testing.T, app *fiber.App, path string) healthAnswer {
	t.Helper()
	res, err := app.Test(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil), -1)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got := healthAnswer{Code: res.StatusCode}
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestHealth(t *testing.T) {
	errAway := errors.New("nats://secret@10.0.0.1 is away")
	errFull := fmt.Errorf("at 10.0.0.1: %w", web.ShownError("the disk is full"))
	tests := map[string]struct {
		check        error
		live, ready  int
		status, word string
	}{
		"all is well":                     {nil, 200, 200, "ok", "ok"},
		"something fails":                 {errAway, 200, 503, "unavailable", "unavailable"},
		"something fails, and may say so": {errFull, 200, 503, "unavailable", "the disk is full"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			app := web.New(web.Config{})
			web.NewHealth("v1", []string{"api"}, web.Check{Name: "nats", Look: func(context.Context) error { return test.check }}).Routes(app)
			want := healthAnswer{test.live, test.status, "v1", []string{"api"}, map[string]string{"nats": test.word}}
			if diff := cmp.Diff(want, askHealth(t, app, "/healthz")); diff != "" {
				t.Errorf("/healthz (-want +got):\n%s", diff)
			}
			want.Code = test.ready
			if diff := cmp.Diff(want, askHealth(t, app, "/readyz")); diff != "" {
				t.Errorf("/readyz (-want +got):\n%s", diff)
			}
		})
	}
}

// Anybody may ask as often as they like: the bus is asked once a second.
func TestHealthLooksOnceASecond(t *testing.T) {
	app := web.New(web.Config{})
	var looks atomic.Int64
	web.NewHealth("v1", nil, web.Check{Name: "nats", Look: func(context.Context) error {
		looks.Add(1)
		return nil
	}}).Routes(app)
	began := time.Now()
	for range 200 {
		askHealth(t, app, "/readyz")
	}
	if got, most := looks.Load(), int64(time.Since(began)/time.Second)+1; got > most {
		t.Errorf("got %d looks, want at most %d", got, most)
	}
}

// A supervisor that waits a second for /healthz must not restart the process.
func TestTheLivenessOfAProcessDoesNotWaitForItsChecks(t *testing.T) {
	app := web.New(web.Config{})
	back := make(chan struct{})
	web.NewHealth("v1", nil, web.Check{Name: "nats", Look: func(context.Context) error {
		<-back // as a call of a connection that is being made
		return nil
	}}).Routes(app)
	want := healthAnswer{200, "unavailable", "v1", nil, map[string]string{"nats": "unknown"}}
	if diff := cmp.Diff(want, askHealth(t, app, "/healthz")); diff != "" {
		t.Errorf("/healthz (-want +got):\n%s", diff)
	}
	close(back)
	if got := askHealth(t, app, "/readyz"); got.Code != 200 || got.Checks["nats"] != "ok" {
		t.Errorf("/readyz: got %d %v, want 200, what the checks say", got.Code, got.Checks)
	}
}

func TestAProcessThatStopsIsNotReadyFirst(t *testing.T) {
	app := web.New(web.Config{})
	h := web.NewHealth("v1", nil)
	h.Routes(app)
	ctx, stop := context.WithCancel(t.Context())
	drained, done := h.Drained(ctx, 50*time.Millisecond)
	defer done()
	if got := askHealth(t, app, "/readyz"); got.Code != 200 {
		t.Fatalf("got %d before the stop, want 200", got.Code)
	}
	stop()
	<-drained.Done() // by then it has been unready for the delay
	if got := askHealth(t, app, "/readyz"); got.Code != 503 || got.Status != "stopping" {
		t.Errorf("got %d %s after the stop, want 503 stopping", got.Code, got.Status)
	}
	if got := askHealth(t, app, "/healthz"); got.Code != 200 {
		t.Errorf("/healthz: got %d, want 200", got.Code)
	}
}

// A word says more than ok, and does not make the process unready.
func TestACheckMaySayMore(t *testing.T) {
	word := func(text string) func(context.Context) string { return func(context.Context) string { return text } }
	app := web.New(web.Config{})
	web.NewHealth("v1", nil, web.Check{Name: "recorder", Say: word("standby")}, web.Check{Name: "quiet", Say: word("")},
		web.Check{Name: "broken", Say: word("active"), Look: func(context.Context) error { return errors.New("away") }}).Routes(app)
	got := askHealth(t, app, "/readyz")
	want := map[string]string{"recorder": "standby", "quiet": "ok", "broken": "unavailable"}
	if diff := cmp.Diff(want, got.Checks); diff != "" || got.Code != 503 {
		t.Errorf("got %d, want 503 (-want +got):\n%s", got.Code, diff)
	}
}

// A client that keeps its connection has to open another one, which a
// balancer leads elsewhere.
func TestAProcessThatStopsKeepsNoConnection(t *testing.T) {
	app := web.New(web.Config{})
	h := web.NewHealth("v1", nil)
	h.Routes(app)
	app.Get("/work", func(c *fiber.Ctx) error { return c.SendStatus(204) })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	drained, done := h.Drained(ctx, 50*time.Millisecond)
	defer done()
	for _, want := range []bool{false, true} {
		res, err := app.Test(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/work", nil), -1)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.Close != want {
			t.Errorf("got Connection: close %v, want %v", res.Close, want)
		}
		stop()
		<-drained.Done()
	}
}

// Who opens the address in a browser learns what the server is, without a key.
func TestTheRootSaysWhatThisIs(t *testing.T) {
	app := web.New(web.Config{})
	web.NewHealth("v1.2.3", nil).Routes(app)
	for method, want := range map[string]struct {
		status int
		body   string
	}{
		http.MethodGet:  {200, `{"name":"flightline","version":"v1.2.3","openapi":"/openapi.json","health":"/readyz"}`},
		http.MethodPost: {405, ""},
	} {
		res, err := app.Test(httptest.NewRequestWithContext(t.Context(), method, "/", nil), -1)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != want.status || want.body != "" && string(body) != want.body {
			t.Errorf("%s: got %d %s, %v, want %d %s", method, res.StatusCode, body, err, want.status, want.body)
		}
	}
}
