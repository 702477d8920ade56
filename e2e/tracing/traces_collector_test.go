package tracing

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"flightline/shared/testenv/program"
)

// collected is a receiver of OTLP over HTTP.
type collected struct {
	t       *testing.T
	url     string
	arrived chan struct{}

	mu     sync.Mutex
	all    []oneSpan
	header http.Header // of the last request
}

// oneSpan is what a test looks at.
type oneSpan struct {
	service, name, trace, id, parent string
	state                            string
	kind                             otlp.Span_SpanKind
	failed                           bool
	took                             time.Duration
	links                            []string // trace/span
	events                           []string // their names
	attrs                            map[string]string
}

func (s oneSpan) ref() string { return s.trace + "/" + s.id }

func newCollected(t *testing.T) *collected {
	t.Helper()
	s := &collected{t: t, arrived: make(chan struct{}, 1)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// variables switch traces on.
func (s *collected) variables() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + s.url, "OTEL_BSP_SCHEDULE_DELAY=100"}
}

// ServeHTTP takes spans.
func (s *collected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &sent) != nil {
		s.t.Errorf("got a request to %s with %d bytes that are no spans, %v", r.URL.Path, len(body), err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.header = r.Header
	for _, process := range sent.ResourceSpans {
		service := attributes(process.Resource.Attributes)["service.name"]
		for _, scope := range process.ScopeSpans {
			for _, one := range scope.Spans {
				s.all = append(s.all, readSpan(service, one))
			}
		}
	}
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func readSpan(service string, p *otlp.Span) oneSpan {
	s := oneSpan{
		service: service, name: p.Name, kind: p.Kind, trace: hex.EncodeToString(p.TraceId), id: hex.EncodeToString(p.SpanId),
		parent: hex.EncodeToString(p.ParentSpanId), state: p.TraceState, failed: p.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR,
		took: time.Duration(p.EndTimeUnixNano - p.StartTimeUnixNano), attrs: attributes(p.Attributes),
	}
	for _, l := range p.Links {
		s.links = append(s.links, hex.EncodeToString(l.TraceId)+"/"+hex.EncodeToString(l.SpanId))
	}
	for _, e := range p.Events {
		s.events = append(s.events, e.Name)
	}
	return s
}

func attributes(list []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			all[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			all[kv.Key] = fmt.Sprint(v.IntValue)
		}
	}
	return all
}

// wait returns the first span that is so; what says which.
func (s *collected) wait(what string, is func(oneSpan) bool) oneSpan {
	s.t.Helper()
	late := time.NewTimer(2 * program.Soon)
	defer late.Stop()
	for {
		s.mu.Lock()
		for _, one := range s.all {
			if is(one) {
				s.mu.Unlock()
				return one
			}
		}
		s.mu.Unlock()
		select {
		case <-s.arrived:
		case <-late.C:
			s.t.Fatalf("no span: %s; got\n%s", what, s)
		}
	}
}

// of waits for the span of a name that concerns a job.
func (s *collected) of(name, job string) oneSpan {
	s.t.Helper()
	return s.wait(name+" of "+job, func(one oneSpan) bool {
		return one.name == name && (one.attrs["messaging.message.id"] == job || one.attrs["flightline.job.id"] == job)
	})
}

// String shows all that came.
func (s *collected) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, one := range s.all {
		fmt.Fprintf(&b, "%+v\n", one)
	}
	return b.String()
}
