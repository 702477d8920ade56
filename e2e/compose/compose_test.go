package compose

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/e2e/need"
)

// The files are ones that compose takes, whatever version of it.
func TestComposeFilesAreValid(t *testing.T) {
	s := newStack(t)
	s.compose(soon, "config", "-q")
	s.compose(soon, "-f", "compose.cluster.yaml", "config", "-q")
}

// The README's job runs, on RunPod's own Python worker, its webhook arrives,
// and when every container is restarted under load no job that was accepted is
// lost, and no request fails but those that its own server was away for.
func TestComposeOutlivesRestartsUnderLoad(t *testing.T) {
	if !need.Asked("compose") {
		t.Skip("takes minutes: set FLIGHTLINE_REQUIRE=compose")
	}
	s := newStack(t)
	s.up()
	s.eventually("the Python worker answers", func() bool {
		j, _, err := s.job(http.MethodPost, "runsync", `{"input":{"text":"hello"},"webhook":"http://receiver:9000/"}`)
		return err == nil && j.Status == "COMPLETED"
	})
	s.eventually("the webhook arrives", func() bool {
		return strings.Contains(s.compose(soon, "logs", "receiver"), `RECEIVED {`)
	})

	load := s.load()
	for _, service := range []string{"worker", "gateway", "recorder", "webhook", "autoscaler", "control", "nats", "api"} {
		s.compose(upWithin, "restart", "-t", "20", service)
		pause(2 * time.Second)
	}
	accepted, failed := load()
	t.Logf("%d jobs accepted, %d requests that found nobody", len(accepted), failed)
	if len(accepted) < 50 {
		t.Errorf("got %d jobs accepted, want a load", len(accepted))
	}
	for _, id := range accepted {
		s.eventually("job "+id+" is completed", func() bool {
			j, _, err := s.job(http.MethodGet, "status/"+id, "")
			return err == nil && j.Status == "COMPLETED"
		})
	}
	if said := s.compose(soon, "logs", "nats"); strings.Contains(said, "Violation") {
		t.Errorf("somebody tried what it may not:\n%s", said)
	}
}

// load submits ten jobs a second until what it returns is called, which tells
// what was accepted and how many requests found nobody there.
func (s *stack) load() (end func() (accepted []string, failed int)) {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var accepted []string
	var failed int
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			j, code, err := s.job(http.MethodPost, "run", `{"input":{"text":"load"},"policy":{"ttl":3600000}}`) //nolint:contextcheck // each has an end of its own
			switch {
			case err != nil, code == http.StatusServiceUnavailable:
				failed++ // the API or NATS is being restarted: not accepted, and said so
			case code == http.StatusOK:
				accepted = append(accepted, j.ID)
			default:
				s.t.Errorf("submit: got %d", code)
			}
			pause(100 * time.Millisecond)
		}
	})
	return func() ([]string, int) {
		stop()
		wg.Wait()
		return accepted, failed
	}
}
