package contract

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/services/conformance"
)

// breach is one thing that is wrong with a server, and the scenario that has
// to notice.
type breach struct {
	noticed string
	what    string
	// request changes what the server gets, answer what it says; nil for none.
	request func(r *http.Request, body string) string
	answer  func(a *altered)
}

// altered is an answer on its way.
type altered struct {
	method, path string // of the request, with its query
	sent         string // body of the request
	status       int
	header       http.Header
	body         string
}

// swapped puts one text for another into the answers at addresses that hold at.
func swapped(at, pattern, with string) func(*altered) {
	find := regexp.MustCompile(pattern)
	return func(a *altered) {
		if strings.Contains(a.path, at) {
			a.body = find.ReplaceAllString(a.body, with)
		}
	}
}

// statused puts one HTTP status for another.
func statused(at string, from, to int) func(*altered) {
	return func(a *altered) {
		if strings.Contains(a.path, at) && a.status == from {
			a.status = to
		}
	}
}

// sentAs puts one text for another into requests.
func sentAs(pattern, with string) func(*http.Request, string) string {
	find := regexp.MustCompile(pattern)
	return func(r *http.Request, body string) string {
		r.URL.RawQuery = find.ReplaceAllString(r.URL.RawQuery, with)
		return find.ReplaceAllString(body, with)
	}
}

// broken is a server in front of another, and has the breach.
func broken(t *testing.T, behind string, d breach) string {
	t.Helper()
	pool := &http.Transport{MaxIdleConnsPerHost: 16}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		if err != nil {
			return // the client has left
		}
		a := altered{method: in.Method, path: in.URL.String(), sent: string(body)}
		req := in.Clone(in.Context())
		req.Header.Del("Content-Length")
		if d.request != nil {
			body = []byte(d.request(req, string(body)))
		}
		if err := forward(in.Context(), pool, behind, req, body, &a); err != nil {
			http.Error(out, err.Error(), http.StatusBadGateway)
			return
		}
		if d.answer != nil {
			d.answer(&a)
		}
		for name := range a.header {
			if name != "Content-Length" && name != "Connection" {
				out.Header().Set(name, a.header.Get(name))
			}
		}
		out.WriteHeader(a.status)
		_, _ = io.WriteString(out, a.body)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		pool.CloseIdleConnections()
	})
	return server.URL
}

func forward(ctx context.Context, pool http.RoundTripper, behind string, in *http.Request, body []byte, a *altered) error {
	req, err := http.NewRequestWithContext(ctx, in.Method, behind+in.URL.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = in.Header
	resp, err := pool.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a.status, a.header, a.body = resp.StatusCode, resp.Header, string(raw)
	return err
}

// conformBreaches is the test that the scenarios can fail: each has at least
// one breach that it notices.
func conformBreaches(t *testing.T, behind string) {
	t.Helper()
	all := breaches(t)
	noticing := map[string]bool{
		"forgotten": true, // takes minutes; made like ttl-completed
	}
	next := make(chan breach)
	var wg sync.WaitGroup
	var missed atomic.Int64
	for range 16 {
		wg.Go(func() {
			for d := range next {
				t.Run(d.noticed+": "+d.what, func(t *testing.T) {
					if notices(t, broken(t, behind, d), d.noticed); t.Failed() {
						missed.Add(1)
					}
				})
			}
		})
	}
	long := func(d breach) int { return len(regexp.MustCompile("^(kept|ttl|status-ttl)").FindString(d.noticed)) }
	slices.SortStableFunc(all, func(a, b breach) int { return cmp.Compare(long(b), long(a)) })
	for _, d := range all {
		noticing[d.noticed] = true
		next <- d
	}
	close(next)
	wg.Wait()
	for _, s := range conformance.Scenarios() {
		if !noticing[s.Name] {
			t.Errorf("%s: no breach shows that it can fail", s.Name)
		}
	}
	t.Logf("%d breaches, %d missed", len(all), missed.Load())
}

// patience is what a scenario waits in vain for a fact that does not come; more than the
// ttl that it waits for.
const patience = 20 * time.Second

// notices wants the scenario to fail.
func notices(t *testing.T, url, scenario string) {
	t.Helper()
	report, err := conformance.Run(t.Context(), conformance.Config{BaseURL: url, Key: contractKey, Make: true, Rates: true, Only: []string{scenario}, Together: 1, FactTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Scenarios) != 1 || report.Failed != 1 {
		t.Fatalf("got %+v, want %s to fail", report.Scenarios, scenario)
	}
	detail := report.Scenarios[0].Detail
	for _, other := range []string{"deadline", "EOF", "connection", "Bad Gateway"} {
		if strings.Contains(detail, other) {
			t.Errorf("got %q, want it to be what is wrong and not the connection", detail)
		}
	}
	t.Log(detail)
}

// relay is a server through which webhooks go, each so many times and changed.
func relay(t *testing.T, times int, change *strings.Replacer) func(*http.Request, string) string {
	t.Helper()
	var to sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		target, known := to.Load(in.URL.Path)
		for range times {
			if err != nil || !known {
				break
			}
			resp, err := http.Post(target.(string), "application/json", strings.NewReader(change.Replace(string(body))))
			if err != nil {
				break
			}
			_ = resp.Body.Close()
		}
		out.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(server.Close)
	find, n := regexp.MustCompile(`"webhook":"([^"]*)"`), new(atomic.Int64)
	return func(_ *http.Request, body string) string {
		found := find.FindStringSubmatch(body)
		if found == nil {
			return body
		}
		path := fmt.Sprintf("/%d", n.Add(1))
		to.Store(path, found[1])
		return strings.Replace(body, found[0], fmt.Sprintf(`"webhook":"%s%s"`, server.URL, path), 1)
	}
}

func breaches(t *testing.T) []breach {
	t.Helper()
	return slices.Concat(submissionBreaches(), recordBreaches(), streamBreaches(), endBreaches(), refusalBreaches(), timeBreaches(), aroundBreaches(t))
}

func submissionBreaches() []breach {
	return []breach{
		{noticed: "run", what: "201", answer: statused("/run", 200, 201)},
		{noticed: "run", what: "no id", answer: swapped("/run", `"id":"[^"]*",`, "")},
		{noticed: "run", what: "one id for all", answer: swapped("/run", `"id":"[^"]*"`, `"id":"same"`)},
		{noticed: "run", what: "an id that is no part of a path", answer: swapped("/run", `"id":"`, `"id":"a/`)},
		{noticed: "run", what: "another status", answer: swapped("/run", `IN_QUEUE`, `QUEUED`)},
		{noticed: "runsync", what: "an id without its prefix", answer: swapped("/runsync", `"sync-`, `"`)},
		{noticed: "runsync", what: "delayTime as text", answer: swapped("/runsync", `"delayTime":(\d+)`, `"delayTime":"$1"`)},
		{noticed: "runsync", what: "no executionTime", answer: swapped("/runsync", `"executionTime":\d+,`, ``)},
		{noticed: "runsync", what: "another output", answer: swapped("/runsync", `"output":\{"conform":`, `"output":{"else":`)},
		{noticed: "runsync-wait", what: "wait is ignored", request: sentAs(`wait=1000`, `wait=30000`)},
		{noticed: "runsync-wait", what: "an id without its prefix", answer: swapped("/runsync", `"sync-`, `"`)},
		{noticed: "runsync-wait-bounds", what: "999 is taken", request: sentAs(`wait=999`, `wait=1000`)},
		{noticed: "runsync-wait-bounds", what: "300000 is refused", request: sentAs(`wait=300000$`, `wait=300001`)},
		{noticed: "runsync-wait-bounds", what: "text is taken", request: sentAs(`wait=soon`, `wait=1000`)},
		{noticed: "worker-gets-job", what: "no s3Config", answer: swapped("/job-take", `"s3Config":`, `"other":`)},
		{noticed: "worker-gets-job", what: "no empty input", answer: swapped("/job-take", `"input":\{\}`, `"input":null`)},
		{noticed: "s3config-hidden", what: "in the record", answer: swapped("/status/", `^\{`, `{"s3Config":{"accessSecret":"conform-s3-secret"},`)},
		{noticed: "unknown-fields", what: "refused", answer: func(a *altered) {
			if strings.Contains(a.sent, "conformUnknown") {
				a.status = http.StatusBadRequest
			}
		}},
	}
}

func recordBreaches() []breach {
	return []breach{
		{noticed: "status", what: "a fraction", answer: swapped("/status/", `"executionTime":(\d+)`, `"executionTime":$1.5`)},
		{noticed: "status", what: "an exponent", answer: swapped("/status/", `"delayTime":(\d+)`, `"delayTime":${1}e3`)},
		{noticed: "status", what: "no delayTime", answer: swapped("/status/", `"delayTime":\d+,`, ``)},
		{noticed: "status", what: "another id", answer: swapped("/status/", `"id":"`, `"id":"x`)},
		{noticed: "status", what: "no output", answer: swapped("/status/", `"output":`, `"result":`)},
		{noticed: "states", what: "never in progress", answer: swapped("/status/", `IN_PROGRESS`, `IN_QUEUE`)},
		{noticed: "states", what: "a state that is none", answer: swapped("/status/", `IN_PROGRESS`, `RUNNING`)},
		{noticed: "failed", what: "a 500", answer: func(a *altered) {
			if strings.Contains(a.body, `"FAILED"`) {
				a.status = http.StatusInternalServerError
			}
		}},
		{noticed: "failed-output", what: "no output", answer: swapped("/status/", `"output":{"details":"[^"]*"},`, ``)},
		{noticed: "failed", what: "another state", answer: swapped("/status/", `"FAILED"`, `"COMPLETED"`)},
		{noticed: "failed", what: "an error that is no text", answer: swapped("/status/", `"error":"[^"]*"`, `"error":{"message":"x"}`)},
		{noticed: "times", what: "seconds", answer: swapped("/status/", `"executionTime":(\d+)\d{3}`, `"executionTime":$1`)},
		{noticed: "status-ttl", what: "text is taken", request: sentAs(`ttl=soon`, `ttl=12000`)},
		{noticed: "status-ttl", what: "ignored", request: sentAs(`ttl=12000`, ``)},
		{noticed: "status-ttl", what: "too soon", request: sentAs(`ttl=12000`, `ttl=3000`)},
	}
}

func streamBreaches() []breach {
	return []breach{
		{noticed: "stream", what: "an object", answer: swapped("/stream/", `^(.*)$`, `{"stream":$1}`)},
		{noticed: "stream", what: "bare outputs", answer: swapped("/stream/", `\{"output":(\{[^}]*\})\}`, `$1`)},
		{noticed: "stream", what: "nothing", answer: swapped("/stream/", `^(.*)$`, `[]`)},
		{noticed: "stream-order", what: "no metrics", answer: swapped("/stream/", `"metrics":\{[^}]*\},`, ``)},
		{noticed: "stream-order", what: "a chunk twice", answer: swapped("/stream/", `\{"output":\{"n":1\}\}`, `{"output":{"n":1}},{"output":{"n":1}}`)},
		{noticed: "stream-order", what: "a chunk lost", answer: swapped("/stream/", `,?\{"output":\{"n":2\}\}`, ``)},
		{noticed: "stream-split", what: "one large chunk", answer: swapped("/stream/", `x"\},\{"output":"x`, `xx`)},
		{noticed: "client-stream", what: "an array", request: func(r *http.Request, body string) string {
			if strings.Contains(r.URL.Path, "/stream/") {
				r.Header.Del("Content-Type")
			}
			return body
		}},
		{noticed: "client-stream", what: "no status", answer: swapped("/stream/", `"status":"COMPLETED"`, `"status":"FAILED"`)},
	}
}

func endBreaches() []breach {
	purged := new(atomic.Bool)
	return []breach{
		{noticed: "cancel-queued", what: "no id", answer: swapped("/cancel/", `"id"`, `"job"`)},
		{noticed: "cancel-queued", what: "gone at once", answer: func(a *altered) {
			if strings.Contains(a.path, "/status/") && strings.Contains(a.body, "CANCELLED") {
				a.status = http.StatusNotFound
			}
		}},
		{noticed: "cancel-running", what: "another status", answer: swapped("/cancel/", `CANCELLED`, `IN_PROGRESS`)},
		{noticed: "cancel-running", what: "completed all the same", answer: swapped("/status/", `CANCELLED`, `COMPLETED`)},
		{noticed: "retry-failed", what: "another id", answer: swapped("/retry/", `"id":"`, `"id":"x`)},
		{noticed: "retry-failed", what: "refused", answer: statused("/retry/", 200, 400)},
		{noticed: "retry-input", what: "the earlier error stays", answer: swapped("/status/", `"status":"IN_`, `"error":"the first time","status":"IN_`)},
		{noticed: "retry-input", what: "another input", answer: swapped("/status/", `"once":true`, `"once":false`)},
		{noticed: "retry-completed", what: "taken", answer: statused("/retry/", 400, 200)},
		{noticed: "retry-queued", what: "taken", answer: statused("/retry/", 400, 200)},
		{noticed: "retry-cancelled", what: "taken", answer: statused("/retry/", 400, 200)},
		{noticed: "retry-running", what: "taken", answer: statused("/retry/", 400, 200)},
		{noticed: "purge", what: "one too few", answer: swapped("/purge-queue", `"removed":3`, `"removed":2`)},
		{noticed: "purge", what: "a text", answer: swapped("/purge-queue", `"removed":(\d+)`, `"removed":"$1"`)},
		{noticed: "purge", what: "no status", answer: swapped("/purge-queue", `"status":"[^"]*"`, `"other":""`)},
		{noticed: "purge", what: "they wait on", answer: swapped("/status/", `CANCELLED`, `IN_QUEUE`)},
		{noticed: "purge-running", what: "what runs is cancelled", answer: func(a *altered) {
			if strings.Contains(a.path, "/purge-queue") {
				purged.Store(true)
			}
			if purged.Load() && strings.Contains(a.path, "/status/") {
				a.body = strings.ReplaceAll(a.body, "IN_PROGRESS", "CANCELLED")
			}
		}},
		{noticed: "rate-purge", what: "no limit", answer: statused("/purge-queue", 429, 200)},
		{noticed: "rate-purge", what: "no Retry-After", answer: func(a *altered) { a.header.Del("Retry-After") }},
		{noticed: "rate-cancel", what: "no limit", answer: statused("/cancel/", 429, 404)},
	}
}

func refusalBreaches() []breach {
	let := func(key string) func(*http.Request, string) string {
		return func(r *http.Request, body string) string {
			if r.Header.Get("Authorization") == key {
				r.Header.Set("Authorization", "Bearer "+contractKey)
			}
			return body
		}
	}
	small := func(operation string, megabytes int) func(a *altered) {
		return func(a *altered) {
			if strings.Contains(a.path, operation) && len(a.sent) > megabytes<<20 {
				a.status = http.StatusRequestEntityTooLarge
			}
		}
	}
	return []breach{
		{noticed: "key-forms", what: "the bare key is refused", request: func(r *http.Request, body string) string {
			if r.Header.Get("Authorization") == contractKey {
				r.Header.Del("Authorization")
			}
			return body
		}},
		{noticed: "key-missing", what: "none is needed", request: let("")},
		{noticed: "key-missing", what: "403", answer: statused("/", 401, 403)},
		{noticed: "key-wrong", what: "any will do", request: let("Bearer conform-wrong-key")},
		{noticed: "unknown-endpoint", what: "400", answer: statused("/health", 404, 400)},
		{noticed: "unknown-endpoint", what: "a job", answer: statused("/run", 404, 200)},
		{noticed: "unknown-job", what: "an empty record", answer: statused("/status/", 404, 200)},
		{noticed: "malformed-json", what: "500", answer: statused("/run", 400, 500)},
		{noticed: "malformed-json", what: "null is taken", request: sentAs(`^null$`, `{"input":{}}`)},
		{noticed: "input-required", what: "text is taken", request: sentAs(`"input":"text"`, `"input":{}`)},
		{noticed: "input-required", what: "none is needed", request: sentAs(`"prompt":"x"`, `"input":{}`)},
		{noticed: "fields-typed", what: "a webhook that is no address", request: sentAs(`no address`, `http://127.0.0.1:1/`)},
		{noticed: "fields-typed", what: "a duration as text", request: sentAs(`"10s"`, `10000`)},
		{noticed: "policy-bounds", what: "too short is taken", request: sentAs(`"executionTimeout":4999`, `"executionTimeout":5000`)},
		{noticed: "policy-bounds", what: "too long is taken", request: sentAs(`604800001`, `604800000`)},
		{noticed: "policy-bounds", what: "a week is refused", request: sentAs(`"ttl":604800000`, `"ttl":704800000`)},
		{noticed: "run-size", what: "9 MB only", answer: small("/run", 9)},
		{noticed: "run-size", what: "more is taken", answer: statused("/run", 413, 200)},
		{noticed: "runsync-size", what: "10 MB only", answer: small("/runsync", 10)},
		{noticed: "client-errors", what: "text", answer: func(a *altered) { a.header.Set("Content-Type", "text/plain") }},
		{noticed: "client-errors", what: "an error that is no text", answer: swapped("/", `"error":"[^"]*"`, `"error":{}`)},
	}
}

func timeBreaches() []breach {
	return []breach{
		{noticed: "low-priority", what: "refused", answer: func(a *altered) {
			if strings.Contains(a.sent, "lowPriority") {
				a.status = http.StatusBadRequest
			}
		}},
		{noticed: "execution-timeout", what: "ignored", request: sentAs(`"executionTimeout":5000`, `"executionTimeout":50000`)},
		{noticed: "execution-timeout", what: "too soon", answer: swapped("/status/", `IN_PROGRESS`, `TIMED_OUT`)},
		{noticed: "execution-timeout", what: "another status", answer: swapped("/status/", `TIMED_OUT`, `FAILED`)},
		{noticed: "execution-timeout-retry", what: "refused", answer: statused("/retry/", 200, 400)},
		{noticed: "ttl-queued", what: "410", answer: statused("/status/", 404, 410)},
		{noticed: "ttl-running", what: "TIMED_OUT", answer: func(a *altered) {
			if strings.Contains(a.path, "/status/") && a.status == http.StatusNotFound {
				a.status, a.body = http.StatusOK, `{"id":"x","status":"TIMED_OUT"}`
			}
		}},
		{noticed: "ttl-completed", what: "ignored", request: sentAs(`"ttl":10000`, `"ttl":100000`)},
		{noticed: "kept", what: "the synchronous one is not", answer: func(a *altered) {
			if strings.Contains(a.path, "/status/sync-") {
				a.status = http.StatusNotFound
			}
		}},
		{noticed: "execution-timeout", what: "no policy at all", request: sentAs(`"policy":\{[^}]*\}`, `"other":{}`)},
	}
}

func aroundBreaches(t *testing.T) []breach {
	t.Helper()
	same := strings.NewReplacer()
	return []breach{
		{noticed: "health", what: "a fraction", answer: swapped("/health", `"inQueue":(\d+)`, `"inQueue":$1.0`)},
		{noticed: "health", what: "no retried", answer: swapped("/health", `"retried":\d+,?`, ``)},
		{noticed: "health", what: "a negative count", answer: swapped("/health", `"idle":\d+`, `"idle":-1`)},
		{noticed: "health-counts", what: "nothing waits", answer: swapped("/health", `"inQueue":\d+`, `"inQueue":0`)},
		{noticed: "pod", what: "another state", answer: swapped("/v1/pods/", `"RUNNING"`, `"running"`)},
		{noticed: "pod", what: "null", answer: swapped("/v1/pods/", `"locked":(true|false)`, `"locked":null`)},
		{noticed: "pod", what: "another id", answer: swapped("/v1/pods/", `"id":"`, `"id":"x`)},
		{noticed: "pod-includes", what: "the machine unasked", answer: swapped("/v1/pods/", `^\{`, `{"machine":{},`)},
		{noticed: "pod-includes", what: "no boolean", answer: statused("/v1/pods/", 400, 200)},
		{noticed: "pod-refused", what: "an empty pod", answer: statused("/v1/pods/", 404, 200)},
		{noticed: "pod-refused", what: "403", answer: statused("/v1/pods/", 401, 403)},
		{noticed: "webhook", what: "twice", request: relay(t, 2, same)},
		{noticed: "webhook", what: "another id", request: relay(t, 1, strings.NewReplacer(`"id":"`, `"id":"x`))},
		{noticed: "webhook", what: "the secret", request: relay(t, 1, strings.NewReplacer(`"id":"`, `"s3Config":"conform-hook-secret","id":"`))},
		{noticed: "webhook-failed", what: "another status", request: relay(t, 1, strings.NewReplacer(`"FAILED"`, `"COMPLETED"`))},
		{noticed: "webhook-retries", what: "at once", request: relay(t, 3, same)},
		{noticed: "client-post", what: "405", answer: func(a *altered) {
			if a.method == http.MethodPost && strings.Contains(a.path, "/status/") {
				a.status = http.StatusMethodNotAllowed
			}
		}},
		{noticed: "client-methods", what: "404", answer: statused("/", 405, 404)},
		{noticed: "client-methods", what: "no Allow", answer: func(a *altered) { a.header.Del("Allow") }},
		{noticed: "client-lists", what: "not there", answer: statused("/v1/billing/", 200, 404)},
		{noticed: "client-lists", what: "an object", answer: swapped("/v1/containerregistryauth", `^\[\]`, `{}`)},
		{noticed: "client-pod", what: "another image", answer: swapped("/v1/pods/", `^\{`, `{"imageName":"other",`)},
		{noticed: "client-pod", what: "another count", answer: swapped("/v1/pods/", `^\{`, `{"gpuCount":77,`)},
		{noticed: "client-status-sync", what: "not there", answer: statused("/status-sync/", 200, 404)},
		{noticed: "client-status-sync", what: "it does not hold", answer: swapped("/status-sync/", `COMPLETED`, `IN_QUEUE`)},
	}
}
