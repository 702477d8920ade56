package otlp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"flightline/shared/job"
	"flightline/shared/telemetry"
	"flightline/shared/telemetry/otlp"
)

// collector is a receiver of spans.
type collector struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	headers []http.Header
	spans   []*tracepb.Span
	sizes   []int // spans of each request
	about   map[string]string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t, about: map[string]string{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, r.Header)
	if r.Header.Get("Content-Encoding") == "gzip" {
		return
	}
	var got collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &got); err != nil {
		c.t.Error(err)
	}
	size := 0
	for _, process := range got.ResourceSpans {
		for _, kv := range process.Resource.Attributes {
			c.about[kv.Key] = kv.Value.GetStringValue()
		}
		for _, of := range process.ScopeSpans {
			c.spans = append(c.spans, of.Spans...)
			size += len(of.Spans)
		}
	}
	c.sizes = append(c.sizes, size)
}

// open opens a sender to url with the variables, and a log.
func open(t *testing.T, url string, more map[string]string) (*otlp.Sender, *bytes.Buffer) {
	t.Helper()
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url}
	maps.Copy(env, more)
	text := new(bytes.Buffer)
	s, err := otlp.Open(t.Context(), env, "mine", "1", slog.New(slog.NewTextHandler(text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s, text
}

func shut(t *testing.T, s *otlp.Sender) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTheLastSpansAreSentAtTheEnd(t *testing.T) {
	c := newCollector(t)
	s, _ := open(t, c.URL, map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "x-key=k", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"})
	telemetry.End(s.Tracer().Process(t.Context(), &job.Job{ID: "j1"}), "COMPLETED")
	shut(t, s)
	if got := c.headers; len(got) != 1 || got[0].Get("X-Key") != "k" || got[0].Get("Content-Encoding") != "gzip" {
		t.Errorf("got the requests %v, want one, with the header and compressed", got)
	}
}

func TestASpanSaysWhoseItIs(t *testing.T) {
	c := newCollector(t)
	s, _ := open(t, c.URL, map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "a=b,service.version=2", "OTEL_SERVICE_NAME": "other"})
	_, span := s.Tracer().Start(t.Context(), "s")
	span.End()
	shut(t, s)
	if c.about["service.instance.id"] == "" {
		t.Error("got no service.instance.id")
	}
	for key, want := range map[string]string{"service.name": "other", "service.version": "2", "a": "b", "telemetry.sdk.language": "go"} {
		if got := c.about[key]; got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

func TestWhatCannotBeSentIsLogged(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	s, text := open(t, server.URL, nil)
	telemetry.End(s.Tracer().Process(t.Context(), &job.Job{ID: "j1"}), "COMPLETED")
	shut(t, s)
	if !strings.Contains(text.String(), "spans not sent") || !strings.Contains(text.String(), "spans=1") {
		t.Errorf("got the log %q, want the span that could not be sent", text)
	}
}

// A batch has a line at most, and some hundred batches a second may fail.
func TestACollectorThatRefusesAllFillsNoLog(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(bytes.Repeat([]byte("x"), 64<<10))
	}))
	defer server.Close()
	s, text := open(t, server.URL, map[string]string{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1"})
	for range 40 {
		telemetry.End(s.Tracer().Process(t.Context(), &job.Job{ID: "j1"}), "COMPLETED")
	}
	shut(t, s)
	if lines := strings.Count(text.String(), "spans not sent"); lines < 1 || lines > 11 || text.Len() > 10_000 {
		t.Errorf("got %d lines and %d bytes, want some lines and 10,000 bytes at most", lines, text.Len())
	}
}

// A collector that takes requests and never answers does not hold up those who
// make spans, nor the end for longer than 3 s, and nothing goes on after it.
func TestACollectorThatHangsHoldsUpNobody(t *testing.T) {
	asked, done := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-done:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(done)
	s, _ := open(t, server.URL, map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "20", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10"})
	for i := range 1000 { // far more than may wait
		_, span := s.Tracer().Start(t.Context(), fmt.Sprint("s", i))
		span.End()
		if i == 10 {
			<-asked // it is sending, and will be
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the end of a process: Close has a time of its own
	if err := s.Close(ctx); err == nil {
		t.Error("got no error, want that the last spans were not sent")
	}
}

func TestSpansGoTogether(t *testing.T) {
	c := newCollector(t)
	s, _ := open(t, c.URL, map[string]string{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10", "OTEL_BSP_SCHEDULE_DELAY": "3600000"})
	for range 25 {
		_, span := s.Tracer().Start(t.Context(), "s")
		span.End()
	}
	shut(t, s)
	if diff := cmp.Diff([]int{10, 10, 5}, c.sizes); diff != "" {
		t.Errorf("spans of each request (-want +got):\n%s", diff)
	}
}

// The text of a panic may hold a secret.
func TestAPanicIsNoEvent(t *testing.T) {
	c := newCollector(t)
	s, _ := open(t, c.URL, nil)
	func() {
		defer func() { _ = recover() }()
		_, span := s.Tracer().Start(t.Context(), "s")
		defer span.End()
		panic("secret")
	}()
	shut(t, s)
	if len(c.spans) != 1 || len(c.spans[0].Events) != 0 {
		t.Errorf("got %v, want a span without events", c.spans)
	}
}

// Many use a span, and many end spans, at once.
func TestSpansAreSafeForConcurrentUse(t *testing.T) {
	c := newCollector(t)
	s, _ := open(t, c.URL, map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "10000"})
	const callers, each = 8, 200
	var g sync.WaitGroup
	ctx, shared := s.Tracer().Start(t.Context(), "shared")
	for range callers {
		g.Go(func() {
			for range each {
				telemetry.Queued(ctx)
				_, span := s.Tracer().Start(ctx, "s")
				span.End()
			}
			shared.End()
		})
	}
	g.Wait()
	shut(t, s)
	ids := map[string]bool{}
	for _, span := range c.spans {
		ids[string(span.SpanId)] = true
	}
	if want := callers*each + 1; len(c.spans) != want || len(ids) != want {
		t.Errorf("got %d spans with %d ids, want %d", len(c.spans), len(ids), want)
	}
}

const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"

// What is not recorded costs next to nothing, and every process knows that it is not.
func TestAJobOfATraceThatIsNotRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		sampler string
		parent  string // of the request
		carried string // "" for the line of the request's span
	}{
		"begun here":              {"parentbased_always_off", "", "0"},
		"of a caller":             {"parentbased_always_on", caller + "00", ""},
		"each decides for itself": {"always_off", "", ""},
	} {
		to := newCollector(t)
		s, _ := open(t, to.URL, map[string]string{"OTEL_TRACES_SAMPLER": c.sampler})
		tracer := s.Tracer()
		ctx, request := tracer.Request(t.Context(), "POST", c.parent, "")
		j := &job.Job{ID: "j", Endpoint: "ep", Trace: telemetry.Carry(ctx), Attempt: 1, Run: 1, Mode: job.Sync}
		telemetry.Queued(ctx)
		request.End()
		if want := c.carried; j.Trace != want && (want != "" || j.Trace != telemetry.Line(ctx)) {
			t.Errorf("%s: the job carries %q, want %q", name, j.Trace, want)
		}
		run := tracer.Process(t.Context(), j)
		telemetry.End(run, string(job.Completed))
		queued := telemetry.Of(j)
		if line := telemetry.Line(run); !strings.HasSuffix(line, "-00") || !strings.HasPrefix(line, "00-"+queued.TraceID().String()) {
			t.Errorf("%s: the handler gets %q, want the trace %s, not sampled", name, line, queued.TraceID())
		}
		if line := telemetry.RunLine(j); !strings.HasSuffix(line, "-00") || !strings.HasPrefix(line, "00-"+queued.TraceID().String()) {
			t.Errorf("%s: another process says %q, want the trace %s, not sampled", name, line, queued.TraceID())
		}
		if _, linked := telemetry.First(&job.Job{ID: "j", Trace: j.Trace, Attempt: 1, Run: 2}); linked != (c.carried == "") {
			t.Errorf("%s: got a link %v to the first run", name, linked)
		}
		if shut(t, s); len(to.spans) > 0 {
			t.Errorf("%s: got %v, want nothing sent", name, to.spans)
		}
	}
}

func TestARunThatIsRecordedIsCarriedWhole(t *testing.T) {
	c := newCollector(t)
	s, _ := open(t, c.URL, nil)
	ctx, _ := s.Tracer().Request(t.Context(), "POST", caller+"01", "vendor=1")
	j := &job.Job{ID: "j", Endpoint: "ep", Trace: telemetry.Carry(ctx), Attempt: 1, Run: 2}
	telemetry.End(s.Tracer().Process(t.Context(), j), string(job.Completed))
	shut(t, s)
	if len(c.spans) != 1 {
		t.Fatalf("got %v, want one span", c.spans)
	}
	got, parent, run := c.spans[0], trace.SpanContextFromContext(ctx).SpanID(), telemetry.Remote(telemetry.RunLine(j))
	first, _ := telemetry.First(j)
	id, link := run.SpanID(), first.SpanID()
	if got.Name != "process ep" || string(got.ParentSpanId) != string(parent[:]) || string(got.SpanId) != string(id[:]) || got.TraceState != "vendor=1" {
		t.Errorf("got %v, want the run %s beneath %s", got, id, parent)
	}
	if len(got.Links) != 1 || string(got.Links[0].SpanId) != string(link[:]) {
		t.Errorf("got the links %v, want one to the first run, %s", got.Links, link)
	}
	if took := time.Duration(got.EndTimeUnixNano - got.StartTimeUnixNano); took < 0 || took > time.Hour {
		t.Errorf("got a span of %v", took)
	}
}
