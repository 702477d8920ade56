package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"flightline/shared/openapi"
)

// wrongKey marks, in a request's context, how it may differ from openapi.json.
type wrongKey struct{}

const (
	// isWrong is a request that is meant not to fit.
	isWrong = "is wrong"
	// mayBeRefused is a request that may not fit; it then has to be refused.
	mayBeRefused = "may be refused"
)

// maxChecked is the largest request body that is held against the document:
// reading one of 20 MB takes the checker seconds.
const maxChecked = 1 << 20

// checked is a transport that refuses requests and answers that openapi.json
// does not describe.
type checked struct {
	next   http.RoundTripper
	router routers.Router
	mu     sync.Mutex
	seen   map[string]bool // "GET /v2/{endpoint}/health 200"
}

func newChecked(t *testing.T, next http.RoundTripper) *checked {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.JSON())
	if err != nil {
		t.Fatal(err)
	}
	doc.Servers = nil // any
	several(doc)
	closeViews(doc)
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &checked{next: next, router: router, seen: map[string]bool{}}
}

// several lets the path beneath openai have slashes, for which OpenAPI has no
// words and the router a star.
func several(doc *openapi3.T) {
	const beneath = "/v2/{endpoint}/openai/{path}"
	item := doc.Paths.Value(beneath)
	doc.Paths.Delete(beneath)
	doc.Paths.Set(strings.Replace(beneath, "path}", "path*}", 1), item)
}

// closeViews lets no answer have a field that is not described. Clients are to
// ignore such fields; the document is to know them.
func closeViews(doc *openapi3.T) {
	for _, name := range []string{
		"Error", "Job", "BriefJob", "Stream", "Purge", "Health", "Requests", "ListedJob", "Endpoint", "Key", "Worker", "TakenJob",
		"WebhookDeliveries", "WebhookDelivery", "WebhookDestination",
		"Pod", "Machine", "GPU", "CPUType", "SavingsPlan", "Template", "NetworkVolume",
	} {
		schema := doc.Components.Schemas[name].Value
		shut := false
		schema.AdditionalProperties.Has = &shut
		for _, property := range schema.Properties {
			if property.Ref == "" && property.Value.Type.Is("object") && len(property.Value.Properties) > 0 {
				property.Value.AdditionalProperties.Has = &shut
			}
		}
	}
}

// RoundTrip implements http.RoundTripper.
func (c *checked) RoundTrip(req *http.Request) (*http.Response, error) {
	wrong := req.Context().Value(wrongKey{})
	route, params, err := c.router.FindRoute(req)
	if err != nil {
		if wrong == nil {
			return nil, fmt.Errorf("openapi.json: %s %s: %w", req.Method, req.URL.Path, err)
		}
		return c.unrouted(req)
	}
	input := &openapi3filter.RequestValidationInput{
		Request: req, PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true,
			SkipSettingDefaults: true, // the request goes out as it is
			ExcludeRequestBody:  req.ContentLength < 0 || req.ContentLength > maxChecked,
		},
	}
	unfit := openapi3filter.ValidateRequest(req.Context(), input)
	if unfit != nil && wrong == nil {
		_ = req.Body.Close()
		return nil, fmt.Errorf("openapi.json: the request: %w", unfit)
	}
	resp, err := c.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	c.note(fmt.Sprintf("%s %s %d", req.Method, strings.ReplaceAll(route.Path, "*", ""), resp.StatusCode))
	if err := check(req.Context(), input, resp); err != nil {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("openapi.json: the answer %d: %w", resp.StatusCode, err)
	}
	if unfit != nil && wrong == mayBeRefused && resp.StatusCode < http.StatusBadRequest && !workerProtocol(req.URL.Path) {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("openapi.json: the request was answered %d: %w", resp.StatusCode, unfit)
	}
	return resp, nil
}

// check reads the answer, unless it is a stream, and leaves it to be read again.
func check(ctx context.Context, input *openapi3filter.RequestValidationInput, resp *http.Response) error {
	output := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: resp.StatusCode, Header: resp.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		output.Options.ExcludeResponseBody = true
		return openapi3filter.ValidateResponse(ctx, output)
	}
	raw, err := reread(resp)
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusNoContent {
		output.Options.ExcludeResponseBody = true
		if len(raw) > 0 {
			return fmt.Errorf("got a body %q, want none", raw)
		}
	}
	return openapi3filter.ValidateResponse(ctx, output.SetBodyBytes(raw))
}

// unrouted is for what is not in the document: it must be an error of ours.
func (c *checked) unrouted(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	raw, err := reread(resp)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = errorOfOurs(resp.StatusCode, resp.Header, raw)
	}
	return resp, err
}

func reread(resp *http.Response) ([]byte, error) {
	raw, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(raw))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("cut after %d bytes: %w", len(raw), err)
	}
	return raw, err
}

func (c *checked) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[what] = true
}

// unseen lists the operations with no success among what was seen.
func (c *checked) unseen(t *testing.T) []string {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.JSON())
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var missing []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if op := method + " " + path; !c.seen[op+" 200"] && !c.seen[op+" 201"] && !c.seen[op+" 204"] {
				missing = append(missing, op)
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// seenStatuses are the statuses that occurred.
func (c *checked) seenStatuses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]bool{}
	for what := range c.seen {
		found[what[strings.LastIndexByte(what, ' ')+1:]] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// The scenarios are worth what their transport notices.
func TestTheTransportRefusesWhatIsNotDescribed(t *testing.T) {
	t.Parallel()
	const id = "01920c2e-7a4b-7c1d-8e2f-3a4b5c6d7e8f"
	const good = `{"id":"` + id + `","status":"IN_QUEUE"}`
	for name, tc := range map[string]struct {
		path, body string // of the request
		status     int
		requestID  string
		answer     string
		fine       bool
	}{
		"what is described":             {"/v2/ep/run", okBody, 200, id, good, true},
		"a field that is not":           {"/v2/ep/run", okBody, 200, id, `{"id":"` + id + `","status":"IN_QUEUE","more":1}`, false},
		"a status that is none":         {"/v2/ep/run", okBody, 200, id, `{"id":"` + id + `","status":"RUNNING"}`, false},
		"a fraction of a millisecond":   {"/v2/ep/run", okBody, 200, id, `{"id":"` + id + `","status":"IN_QUEUE","delayTime":1.5}`, false},
		"no request id":                 {"/v2/ep/run", okBody, 200, "", good, false},
		"an HTTP status that is not":    {"/v2/ep/run", okBody, 201, id, good, false},
		"an error under another's code": {"/v2/ep/run", okBody, 404, id, `{"error":"x","code":"job_not_found","requestId":"` + id + `"}`, false},
		"a 503 without Retry-After":     {"/v2/ep/run", okBody, 503, id, `{"error":"x","code":"unavailable","requestId":"` + id + `"}`, false},
		"a request without input":       {"/v2/ep/run", `{}`, 200, id, good, false},
		"a request with a short wait":   {"/v2/ep/runsync?wait=999", okBody, 200, id, good, false},
		"a path that is not":            {"/v2/ep/walk", okBody, 200, id, good, false},
	} {
		said := roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: tc.status, Body: io.NopCloser(strings.NewReader(tc.answer)),
				Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {tc.requestID}},
			}, nil
		})
		w := &env{bases: []string{"http://127.0.0.1"}, http: &http.Client{Transport: newChecked(t, said)}}
		if _, err := w.try(t.Context(), call{method: "POST", path: tc.path, body: tc.body}); (err == nil) != tc.fine {
			t.Errorf("%s: got %v, want fine %v", name, err, tc.fine)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
