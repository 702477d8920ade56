package streams_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/testenv"
	"flightline/streams"
)

// within bounds each wait for a fact; far more than any fact takes.
const within = 2 * time.Minute

// env is a server with the shared streams and those of one endpoint.
type env struct {
	*testenv.Server
	e endpoint.Endpoint
}

func start(t *testing.T) env {
	t.Helper()
	b := env{testenv.NewServer(t), endpointOf(t, "ep")}
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := streams.ApplyEndpoint(t.Context(), b.JS, streams.Config{}, b.e); err != nil {
		t.Fatal(err)
	}
	return b
}

func endpointOf(t *testing.T, id string) endpoint.Endpoint {
	t.Helper()
	e, err := endpoint.Endpoint{ID: id}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func contextWithin() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), within)
}

func stream(t *testing.T, js jetstream.JetStream, name string) jetstream.Stream {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatalf("stream %s: %v", name, err)
	}
	return s
}

// The log of workers is the one stream whose bytes NATS reserves.
func TestLogsThatDoNotFitNameTheSetting(t *testing.T) {
	t.Parallel()
	js := open(t, testenv.NewServer(t).NC)
	err := streams.Apply(t.Context(), js, streams.Config{LogsMaxBytes: 1 << 62})
	if err == nil || !strings.Contains(err.Error(), "--logs-max-bytes") || !strings.Contains(err.Error(), "LOGS_0") || !strings.Contains(err.Error(), "4611686018427387904 bytes") {
		t.Errorf("got %v, want the stream, its bytes and --logs-max-bytes", err)
	}
}
