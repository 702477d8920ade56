package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"go.uber.org/goleak"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/web"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// patience bounds every wait for a fact.
const patience = 2 * time.Minute

// serve runs the app on a port of its own until the test ends and returns its address.
func serve(t *testing.T, app *fiber.App) string {
	t.Helper()
	return serveOn(t, app, func(l net.Listener) net.Listener { return l })
}

// serveOn serves the app on what wrap makes of a listener.
func serveOn(t *testing.T, app *fiber.App, wrap func(net.Listener) net.Listener) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := web.Serve(ctx, app, wrap(listener)); err != nil {
			t.Errorf("serve: got %v, want nil", err)
		}
	})
	t.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); cancel(); wg.Wait() })
	return listener.Addr().String()
}

type answer struct {
	status int
	header http.Header
	body   map[string]any
}

// do sends a request and insists on a JSON object.
func do(t *testing.T, req *http.Request) answer {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header}
	if req.Method == http.MethodHead {
		return a
	}
	if err := json.Unmarshal(raw, &a.body); err != nil {
		t.Fatalf("%s %s: %d %q is no JSON object: %v", req.Method, req.URL, resp.StatusCode, raw, err)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %s: got content type %q", req.Method, req.URL, got)
	}
	return a
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestErrorTable(t *testing.T) {
	secret := errors.New("secret detail")
	tests := map[string]struct {
		err  error
		code web.Code
		text string // part of it
	}{
		"field of a job":       {&job.FieldError{Field: "policy.ttl", Problem: "must be whole"}, web.InvalidRequest, "policy.ttl must be whole"},
		"wrapped field":        {fmt.Errorf("wrapped: %w", &job.FieldError{Field: "input", Problem: "is missing"}), web.InvalidRequest, "input is missing"},
		"setting":              {&endpoint.FieldError{Field: "leaseMs", Problem: "is odd"}, web.InvalidRequest, "leaseMs is odd"},
		"scope":                {fmt.Errorf("%w: scope is odd", registry.ErrInvalid), web.InvalidRequest, "scope is odd"},
		"cancel of a finished": {&job.TransitionError{From: job.Completed, By: job.Cancel}, web.JobFinished, "cannot cancel a job that is COMPLETED"},
		"retry of a running":   {&job.TransitionError{From: job.InProgress, By: job.Retry}, web.NotRetryable, "cannot retry a job that is IN_PROGRESS"},
		"bare conflict":        {job.ErrConflict, web.JobFinished, "job finished"},
		"no key":               {registry.ErrUnauthorized, web.Unauthorized, "API key"},
		"no job":               {fmt.Errorf("get: %w", job.ErrNotFound), web.JobNotFound, "no such job"},
		"no endpoint":          {endpoint.ErrNotFound, web.EndpointNotFound, "no such endpoint"},
		"no pod":               {fmt.Errorf("get: %w", pod.ErrNotFound), web.PodNotFound, "no such pod"},
		"locked pod":           {fmt.Errorf("stop: %w", pod.ErrLocked), web.PodConflict, "locked"},
		"used":                 {web.Errorf(web.InUse, "a pod uses it"), web.InUse, "uses it"},
		"nothing":              {registry.ErrNotFound, web.NotFound, "not found"},
		"no route":             {fiber.ErrNotFound, web.RouteNotFound, "no such route"},
		"taken":                {endpoint.ErrExists, web.EndpointExists, "exists"},
		"busy":                 {endpoint.ErrBusy, web.EndpointBusy, "force=true"},
		"queue missing":        {fmt.Errorf("x: %w: %w", &bus.MissingError{Stream: "JOBS_ep", Doing: "read JOBS_ep"}, secret), web.Unavailable, "the stream JOBS_ep is missing"},
		"queue not made yet":   {&bus.MissingError{Stream: "JOBS_ep", Doing: "read JOBS_ep", Changing: true}, web.Unavailable, "is being made or deleted; try again"},
		"queue away":           {fmt.Errorf("x: %w: %w", bus.ErrUnavailable, secret), web.Unavailable, "try again"},
		"another's key":        {web.Errorf(web.IdempotencyMismatch, "the key is taken"), web.IdempotencyMismatch, "taken"},
		"contended":            {registry.ErrConflict, web.Unavailable, "try again"},
		"late":                 {context.DeadlineExceeded, web.Unavailable, "try again"},
		"stopping":             {context.Canceled, web.Unavailable, "stopping"},
		"a full queue": {
			fmt.Errorf("submit: %w", &queue.FullError{Endpoint: "ep", Field: "maxQueueBytes", Size: 7, Used: 95, Limit: 100}), web.TooManyRequests,
			"the queue of endpoint ep is full: it holds 95 bytes, the job has 7, and maxQueueBytes is 100",
		},
		"own":           {web.Errorf(web.TooManyRequests, "slow down by %d", 3), web.TooManyRequests, "slow down by 3"},
		"anything else": {secret, web.Internal, "request id"},
		"a panic's 500": {fiber.ErrInternalServerError, web.Internal, "request id"},
		"too large":     {fiber.ErrRequestEntityTooLarge, web.BodyTooLarge, "too large"},
		"headers":       {fiber.ErrRequestHeaderFieldsTooLarge, web.InvalidRequest, "headers"},
		"no HTTP":       {fiber.NewError(400, "secret detail"), web.InvalidRequest, "not valid HTTP"},
	}
	app := web.New(web.Config{})
	for name, tc := range tests {
		app.Get("/"+strings.ReplaceAll(name, " ", "_"), func(*fiber.Ctx) error { return tc.err })
	}
	base := "http://" + serve(t, app)
	seen := map[web.Code]bool{web.MethodNotAllowed: true, web.RequestTimeout: true} // have tests of their own
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			seen[tc.code] = true
			got := do(t, request(t, http.MethodGet, base+"/"+strings.ReplaceAll(name, " ", "_"), nil))
			if got.status != tc.code.Status() || got.body["code"] != string(tc.code) || got.body["status"] != nil {
				t.Errorf("got %d %v, want %s", got.status, got.body, tc.code)
			}
			text, _ := got.body["error"].(string)
			if !strings.Contains(text, tc.text) || strings.Contains(text, "secret") {
				t.Errorf("got text %q, want one with %q", text, tc.text)
			}
			if got.body["requestId"] != got.header.Get(web.HeaderRequestID) || len(got.body) != 3 {
				t.Errorf("got %v with header %q", got.body, got.header.Get(web.HeaderRequestID))
			}
			if retry := got.header.Get("Retry-After"); (retry == "1") != (got.status == 503 || got.status == 429) {
				t.Errorf("got Retry-After %q with %d", retry, got.status)
			}
			if auth := got.header.Get("WWW-Authenticate"); (auth == "Bearer") != (got.status == 401) {
				t.Errorf("got WWW-Authenticate %q with %d", auth, got.status)
			}
		})
	}
	for code, status := range web.Codes() {
		if !seen[code] {
			t.Errorf("%s (%d) is in no test", code, status)
		}
	}
}

// Who asks the role api for what the role control serves learns which process this is.
func TestARouteOfAnotherProcess(t *testing.T) {
	for want, roles := range map[string][]string{
		"no such route": nil,
		"no such route in this process, which serves api, gateway": {"api", "gateway"},
	} {
		address := serve(t, web.New(web.Config{Roles: roles}))
		a := do(t, request(t, http.MethodGet, "http://"+address+"/v1/endpoints", nil))
		if a.status != http.StatusNotFound || a.body["error"] != want {
			t.Errorf("got %d %v, want %q", a.status, a.body, want)
		}
	}
}
