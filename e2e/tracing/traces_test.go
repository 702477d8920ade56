package tracing

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"flightline/shared/testenv/program"
)

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
	tracesKey    = "a-key-for-traces"
)

// send asks for a path beneath /v2 and returns the answer.
func send(s *program.Env, url, path, body string, header map[string]string) string {
	s.T.Helper()
	req, err := http.NewRequestWithContext(s.T.Context(), http.MethodPost, url+"/v2/"+path, strings.NewReader(body))
	if err != nil {
		s.T.Fatal(err)
	}
	req.Header.Set("Authorization", tracesKey)
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.T.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.T.Fatalf("%s: got %d %s, %v", path, resp.StatusCode, answer, err)
	}
	return string(answer)
}

// jobOf is the id in an answer.
func jobOf(t *testing.T, answer string) string {
	t.Helper()
	var j struct{ ID string }
	program.Decode(t, answer, &j)
	return j.ID
}

// hookHeaders takes webhooks, and hands over the headers of the first.
func hookHeaders(t *testing.T) (url string, got <-chan http.Header) {
	t.Helper()
	first := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case first <- r.Header:
		default:
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, first
}

func received(s *program.Env, got <-chan http.Header) http.Header {
	s.T.Helper()
	select {
	case header := <-got:
		return header
	case <-time.After(program.Soon):
		s.T.Fatal("no webhook came")
		return nil
	}
}

func TestATraceGoesFromTheRequestToTheWebhook(t *testing.T) {
	t.Parallel()
	to, s := newCollected(t), program.New(t)
	s.Environ = append(s.Environ, to.variables()...)
	s.Environ = append(s.Environ, "FLIGHTLINE_API_KEY="+tracesKey, "OTEL_EXPORTER_OTLP_HEADERS=x-tenant=me%20too", "OTEL_SERVICE_NAME=mine")
	d := s.Start("dev")
	url := d.Line(program.Ready)
	d.Line("first job ")
	hook, told := hookHeaders(t)
	id := jobOf(t, send(s, url, "echo/runsync", `{"input":{"secret":"sesame"},"webhook":"`+hook+`/in?token=sesame"}`, map[string]string{
		"traceparent": "00-" + callersTrace + "-" + callersSpan + "-01", "tracestate": "vendor=1",
	}))
	post := to.of("POST webhook", id)
	const runSync = "POST /v2/:endpoint/runsync"
	server, process := to.of(runSync, id), to.of("process echo", id)

	for name, c := range map[string]struct {
		got    oneSpan
		parent string
		kind   otlp.Span_SpanKind
		attrs  map[string]string
	}{
		runSync: {server, callersSpan, otlp.Span_SPAN_KIND_SERVER, map[string]string{
			"http.request.method": "POST", "http.route": "/v2/:endpoint/runsync", "http.response.status_code": "200", "flightline.endpoint.id": "echo",
		}},
		"process echo": {process, server.id, otlp.Span_SPAN_KIND_CONSUMER, map[string]string{
			"messaging.system": "nats", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "echo", "flightline.job.attempt": "1", "flightline.job.run": "1", "flightline.job.outcome": "COMPLETED",
		}},
		"POST webhook": {post, server.id, otlp.Span_SPAN_KIND_CLIENT, map[string]string{
			"http.request.method": "POST", "url.full": hook, "http.response.status_code": "200", "flightline.endpoint.id": "echo", "server.address": "127.0.0.1",
		}},
	} {
		got := c.got
		if got.name != name || got.trace != callersTrace || got.parent != c.parent || got.kind != c.kind || got.failed || len(got.links) > 0 || got.state != "vendor=1" || got.service != "mine" {
			t.Errorf("%s: got %+v, want it in the caller's trace beneath %s", name, got, c.parent)
		}
		for key, want := range c.attrs {
			if got.attrs[key] != want {
				t.Errorf("%s: got %s=%q, want %q", name, key, got.attrs[key], want)
			}
		}
	}
	if !slices.Equal(server.events, []string{"queued"}) {
		t.Errorf("got the events %v, want when the job was queued", server.events)
	}
	if process.attrs["flightline.worker.id"] == "" {
		t.Errorf("got %+v, want the worker's id", process)
	}
	header := received(s, told)
	if want := "00-" + callersTrace + "-" + post.id + "-01"; header.Get("traceparent") != want || header.Get("tracestate") != "vendor=1" {
		t.Errorf("the receiver got %q %q, want %q and the caller's state", header.Get("traceparent"), header.Get("tracestate"), want)
	}
	d.Stop(program.StopWithin)
	if all := to.String(); strings.Contains(all, "sesame") || strings.Contains(all, tracesKey) {
		t.Errorf("a secret is in the spans:\n%s", all)
	}
	if got := to.header.Get("X-Tenant"); got != "me too" {
		t.Errorf("got the header %q, want that of OTEL_EXPORTER_OTLP_HEADERS", got)
	}
}

const run = "POST /v2/:endpoint/run"

// A retry is in the trace of the request for it, and a run after a lost
// worker in the trace of the attempt; both link to where the job comes from.
func TestRetriesAndLostWorkersLinkToTheFirstRun(t *testing.T) {
	t.Parallel()
	to, s := newCollected(t), program.New(t)
	s.Environ = append(s.Environ, to.variables()...)
	s.Environ = append(s.Environ, "FLIGHTLINE_API_KEY="+tracesKey)
	url := s.Start("dev", "--no-demo").Line(program.Ready)
	s.OK("endpoint", "create", "bad")
	s.OK("endpoint", "create", "lost", "--lease", "10s")

	holder := s.Start("worker", "lost", "--", "sleep", "600")
	holder.Line(program.WorkerReady)
	lost := jobOf(t, send(s, url, "lost/run", `{"input":{}}`, nil))
	s.Start("worker", "bad", "--", "sh", "-c", `echo "$TRACEPARENT" >&2; exit 1`).Line(program.WorkerReady)
	bad := jobOf(t, send(s, url, "bad/run", `{"input":{}}`, nil))

	first := to.of("process bad", bad)
	var failed struct{ Error string }
	program.Decode(t, s.OK("status", "bad", bad, "-o", "json"), &failed)
	if want := "00-" + first.trace + "-" + first.id + "-01"; !strings.Contains(failed.Error, want) {
		t.Errorf("the command got the trace context %q, want %q", failed.Error, want)
	}
	send(s, url, "bad/retry/"+bad, "", nil)
	second := to.wait("the retry's run", func(one oneSpan) bool {
		return one.attrs["messaging.message.id"] == bad && one.attrs["flightline.job.attempt"] == "2" && one.name == "process bad"
	})
	submitted := to.of(run, bad)
	again := to.wait("the retry", func(one oneSpan) bool { return one.id == second.parent })
	if first.parent != submitted.id || !first.failed || first.attrs["flightline.job.outcome"] != "FAILED" || len(first.links) > 0 {
		t.Errorf("got the first run %+v, want it failed, beneath %s, without links", first, submitted.id)
	}
	if again.trace == submitted.trace || !slices.Equal(again.links, []string{submitted.ref()}) {
		t.Errorf("got the retry %+v, want a trace of its own and a link to %s", again, submitted.ref())
	}
	if second.trace != again.trace || !slices.Equal(second.links, []string{first.ref()}) {
		t.Errorf("got the second run %+v, want it in the retry's trace with a link to %s", second, first.ref())
	}

	takeOver(s, to, holder, lost)
}

// takeOver kills the worker that holds the job, and looks at the run of the
// next one.
func takeOver(s *program.Env, to *collected, holder *program.Process, lost string) {
	s.T.Helper()
	var now struct{ Status string }
	for deadline := time.Now().Add(program.Soon); now.Status != "IN_PROGRESS" && time.Now().Before(deadline); {
		program.Decode(s.T, s.OK("status", "lost", lost, "-o", "json"), &now)
	}
	holder.Kill()
	s.Start("worker", "lost", "--", "cat").Line(program.WorkerReady)
	second := to.of("process lost", lost)
	queued := to.of(run, lost)
	if second.attrs["flightline.job.run"] != "2" || second.attrs["flightline.job.outcome"] != "COMPLETED" || second.parent != queued.id {
		s.T.Errorf("got %+v, want the second run, completed, beneath %s", second, queued.id)
	}
	if len(second.links) != 1 || !strings.HasPrefix(second.links[0], queued.trace+"/") || second.links[0] == second.ref() {
		s.T.Errorf("got the links %v, want one to the first run, in the trace %s", second.links, queued.trace)
	}
}

func TestNothingIsTracedUnlessTheEnvironmentAsks(t *testing.T) {
	t.Parallel()
	for name, variables := range map[string]func(*collected) []string{
		"no endpoint":  func(*collected) []string { return []string{"OTEL_SERVICE_NAME=mine"} },
		"switched off": func(to *collected) []string { return append(to.variables(), "OTEL_SDK_DISABLED=true") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, s := newCollected(t), program.New(t)
			s.Environ = append(append(s.Environ, variables(to)...), "FLIGHTLINE_API_KEY="+tracesKey)
			d := s.Start("dev")
			url := d.Line(program.Ready)
			d.Line("first job ")
			hook, told := hookHeaders(t)
			send(s, url, "echo/runsync", `{"input":{},"webhook":"`+hook+`"}`, map[string]string{"traceparent": "00-" + callersTrace + "-" + callersSpan + "-01"})
			if got := received(s, told).Get("traceparent"); got != "" {
				t.Errorf("the receiver got the trace context %q, want none", got)
			}
			d.Stop(program.StopWithin)
			if got := to.String(); got != "" {
				t.Errorf("got spans:\n%s", got)
			}
		})
	}
	s := program.New(t)
	s.Environ = append(s.Environ, "OTEL_EXPORTER_OTLP_ENDPOINT=127.0.0.1:4318")
	if code, _, errs := s.Run("dev"); code != 2 || !strings.Contains(errs, "must be an http or https address") {
		t.Errorf("got code %d and %q, want a refusal of the endpoint", code, errs)
	}
}
