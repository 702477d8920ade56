package app

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/process"
	"flightline/shared/testenv"
	"flightline/shared/web"
	"flightline/streams"
)

// A fleet ends before HTTP does, and takes its time: the process is unready from
// the beginning, and serves until then.
func TestAProcessIsUnreadyWhileItsPartsEnd(t *testing.T) {
	h := web.NewHealth("v1", nil)
	app := web.New(web.Config{})
	h.Routes(app)
	ready := func() int {
		t.Helper()
		res, err := app.Test(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody), -1)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	ending, end := make(chan struct{}), make(chan struct{})
	served := make(chan struct{})
	serve := func(ctx context.Context) error {
		<-ctx.Done()
		close(served)
		return nil
	}
	fleet := process.Part{Name: roleAutoscaler, Run: func(ctx context.Context) error {
		<-ctx.Done()
		close(ending)
		<-end
		return nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- process.Run(ctx, slog.New(slog.DiscardHandler), httpPart(plan{}, h, serve), fleet, unready(h))
	}()
	if got := ready(); got != http.StatusOK {
		t.Errorf("before the end: got %d, want 200", got)
	}
	stop()
	<-ending
	if got := ready(); got != http.StatusServiceUnavailable {
		t.Errorf("while the fleet ends: got %d, want 503", got)
	}
	select {
	case <-served:
		t.Error("it no longer serves, want it to until the fleet has ended")
	default:
	}
	close(end)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// With one server of three the last one answers for a stream, and says that nobody leads it.
func TestAStreamWithoutALeaderIsNotReady(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	c := testenv.NewCluster(t)
	if _, err := c.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: streams.BucketEndpoints, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	if err := hasLeader(c.JS)(t.Context()); err != nil {
		t.Errorf("three servers: got %v, want nil", err)
	}
	c.StopNode(0)
	c.StopNode(1)
	testenv.Eventually(t, "the server that is left answers", func() bool {
		s, err := c.JS.Stream(t.Context(), streams.Bucket(streams.BucketEndpoints))
		return err == nil && s.CachedInfo().Cluster.Leader == ""
	})
	if err := hasLeader(c.JS)(t.Context()); err == nil {
		t.Error("one server of three: got nil, want an error")
	}
}

func TestAStopNamesTheDrainDelayAndNoNegativeNumber(t *testing.T) {
	for _, c := range []struct {
		delay time.Duration
		open  int
		want  string
	}{
		{0, 3, "3 open connections"},
		{0, -1, "0 open connections"},
		{process.NoticeDelay - 1, 2, "2 open connections"},
		{2 * time.Second, 0, "--drain-delay 2s, 0 open connections"},
	} {
		if got := httpWaitsFor(c.delay, c.open); got != c.want {
			t.Errorf("%v, %d: got %q, want %q", c.delay, c.open, got, c.want)
		}
	}
}
