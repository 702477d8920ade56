package api

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flightline/shared/ratelimit"
	"flightline/shared/testenv"
)

var update = flag.Bool("update", false, "write testdata/ anew from what the API answers")

// scene is one request and what must hold before it.
type scene struct {
	name         string
	before       func(s *env, id string)
	method, path string // {id} is the job's
	body         string
	key          string // "" means the admin's
	// accept is the Accept header. Answers to scenes with one may be no object.
	accept string
	// header is one more header, "Name: value".
	header string
	// limits hold for the scene if it has some; the request is sent once before.
	limits ratelimit.Table
}

// Each scene has a job of its own, waiting; testdata/<name>.http is what goes
// over the wire, with what differs from run to run replaced.
func scenes() []scene {
	const input = `{"input":{"n":1}}`
	completed := func(s *env, _ string) { s.complete(`{"n":2}`) }
	failed := func(s *env, _ string) { s.fail("handler says no") }
	return []scene{
		{name: "run", method: "POST", path: "/ep/run", body: input},
		{name: "runsync-expired", method: "POST", path: "/ep/runsync?wait=1000", body: input},
		{name: "status-in-queue", method: "GET", path: "/ep/status/{id}"},
		{name: "status-in-progress", method: "GET", path: "/ep/status/{id}", before: func(s *env, _ string) {
			if err := s.take().Progress(s.t.Context(), json.RawMessage(`{"done":"50%"}`)); err != nil {
				s.t.Fatal(err)
			}
		}},
		{name: "status-completed", method: "GET", path: "/ep/status/{id}", before: completed},
		{name: "status-failed", method: "GET", path: "/ep/status/{id}", before: failed},
		{name: "status-cancelled", method: "GET", path: "/ep/status/{id}", before: func(s *env, id string) { s.do("POST", "/ep/cancel/"+id, "") }},
		{name: "status-retried", method: "GET", path: "/ep/status/{id}", before: func(s *env, id string) {
			s.fail("once")
			s.do("POST", "/ep/retry/"+id, "")
			s.complete(`"twice"`)
		}},
		{name: "status-sync-completed", method: "GET", path: "/ep/status-sync/{id}?wait=90000", before: completed},
		{name: "stream-array", method: "GET", path: "/ep/stream/{id}", accept: "application/json", before: emitted(false)},
		{name: "stream-object", method: "POST", path: "/ep/stream/{id}", before: emitted(false)},
		{name: "stream-failed", method: "GET", path: "/ep/stream/{id}?format=object", before: emitted(true)},
		{name: "stream-events", method: "GET", path: "/ep/stream/{id}", accept: "text/event-stream", before: emitted(true)},
		{name: "stream-waiting", method: "POST", path: "/ep/stream/{id}?wait=1000"},
		{name: "cancel", method: "POST", path: "/ep/cancel/{id}"},
		{name: "cancel-finished", method: "POST", path: "/ep/cancel/{id}", before: completed},
		{name: "retry", method: "POST", path: "/ep/retry/{id}", before: failed},
		{name: "retry-in-queue", method: "POST", path: "/ep/retry/{id}"},
		{name: "purge-queue", method: "POST", path: "/ep/purge-queue"},
		{name: "health", method: "GET", path: "/ep/health", before: func(s *env, _ string) {
			// The server counts a moment after it has acknowledged.
			testenv.Eventually(s.t, "the job is counted", func() bool {
				stats, err := s.queue.Counts.Stats(s.t.Context(), s.endpoint)
				return err == nil && stats.Queued == 1 && stats.Running == 0
			})
		}},
		{name: "requests", method: "GET", path: "/ep/requests?status=IN_QUEUE,IN_PROGRESS"},
		{name: "requests-more", method: "GET", path: "/ep/requests?status=COMPLETED,FAILED,CANCELLED,TIMED_OUT&limit=1", before: completed},
		{name: "run-repeated", method: "POST", path: "/ep/run", body: input, header: "Idempotency-Key: order-7", before: func(s *env, _ string) { s.keyed("/ep/run", "order-7", input) }},
		{name: "run-preferring-to-wait", method: "POST", path: "/ep/run", body: input, header: "Prefer: wait=1"},
		{name: "openai", method: "POST", path: chatPath, body: `{"model":"m","messages":[]}`, before: answered(`[{"object":"chat.completion"}]`)},
		{name: "openai-stream", method: "POST", path: chatPath, body: `{"model":"m","stream":true}`, accept: "text/event-stream", before: answered(`["data: {\"object\":\"chat.completion.chunk\"}\n\n","data: [DONE]\n\n"]`)},
		{name: "openai-models", method: "GET", path: "/ep/openai/v1/models", before: answered(`[{"object":"list"}]`)},
		{name: "error-openai", method: "POST", path: chatPath, body: `[]`},
		{name: "error-requests-status", method: "GET", path: "/ep/requests?status=RUNNING"},
		{name: "error-idempotency", method: "POST", path: "/ep/run", body: `{"input":{"n":2}}`, header: "Idempotency-Key: order-8", before: func(s *env, _ string) { s.keyed("/ep/run", "order-8", input) }},
		{name: "error-no-input", method: "POST", path: "/ep/run", body: `{"prompt":"x"}`},
		{name: "error-wait", method: "POST", path: "/ep/runsync?wait=5", body: input},
		{name: "error-unauthorized", method: "POST", path: "/ep/run", body: input, key: "Bearer nobody"},
		{name: "error-job-not-found", method: "GET", path: "/ep/status/nobody"},
		{name: "error-endpoint-not-found", method: "POST", path: "/nobody/run", body: input},
		{name: "error-route", method: "GET", path: "/ep/nothing"},
		{name: "error-method", method: "GET", path: "/ep/run"},
		{name: "error-too-many", method: "POST", path: "/ep/cancel/{id}", limits: ratelimit.Table{ratelimit.Cancel: {Requests: 1, Concurrent: 20}}},
		{name: "error-unavailable", method: "POST", path: "/ep/run", body: input, before: func(s *env, _ string) { s.bus.Stop() }},
	}
}

func TestGeneratedWire(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, sc := range scenes() { // in order: the last one stops the bus
		id := s.submit()
		if sc.before != nil {
			sc.before(s, id)
		}
		at, path := s, strings.ReplaceAll(sc.path, "{id}", id)
		if sc.limits != nil {
			at = s.limited(sc.limits).env
			at.do(sc.method, path, sc.body)
		}
		req := at.request(sc.method, path, strings.NewReader(sc.body))
		if sc.key != "" {
			req.Header.Set("Authorization", sc.key)
		}
		if name, value, ok := strings.Cut(sc.header, ": "); ok {
			req.Header.Set(name, value)
		}
		send := at.send
		if sc.accept != "" {
			req.Header.Set("Accept", sc.accept)
			send = at.sendLoosely
		}
		got := transcript(sc, send(req))
		file := filepath.Join("testdata", sc.name+".http")
		testenv.Golden(t, *update, file, got)
		if sc.name != "error-unavailable" {
			s.do("POST", "/ep/cancel/"+id, "") // so that the next take finds the next job
			s.do("POST", "/ep/purge-queue", "")
		}
	}
}

func TestWireHasNoStrayFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.http")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".http")
		if !slices.ContainsFunc(scenes(), func(s scene) bool { return s.name == name }) {
			t.Errorf("%s belongs to no scene", file)
		}
	}
}

var (
	uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	marks = regexp.MustCompile(`"(submittedAt|startedAt|finishedAt|cursor)":"[^"]+"`)
	seqs  = regexp.MustCompile(`(?m)^id: \d+$`)
	times = regexp.MustCompile(`"(delayTime|executionTime)":\d+`)
)

// transcript is what is the same in every run.
func transcript(sc scene, a answer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s /v2%s\n", sc.method, sc.path)
	if sc.accept != "" {
		fmt.Fprintf(&b, "Accept: %s\n", sc.accept)
	}
	if sc.header != "" {
		fmt.Fprintf(&b, "%s\n", sc.header)
	}
	if sc.body != "" {
		fmt.Fprintf(&b, "\n%s\n", sc.body)
	}
	fmt.Fprintf(&b, "\n---\n%d %s\n", a.status, http.StatusText(a.status))
	for _, name := range []string{"Allow", "Content-Type", "Idempotent-Replayed", "Preference-Applied", "Ratelimit", "Ratelimit-Policy", "Retry-After", "Www-Authenticate", "X-Job-Id", "X-Request-Id"} {
		if v := a.header.Get(name); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", a.raw)
	text := marks.ReplaceAllString(seqs.ReplaceAllString(b.String(), "id: N"), `"$1":"…"`)
	return times.ReplaceAllString(uuids.ReplaceAllString(text, "UUID"), `"$1":MS`)
}
