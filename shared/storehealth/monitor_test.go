package storehealth_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/storehealth"
	"flightline/shared/testenv"
)

func newStream(t *testing.T, b *testenv.Server, name string) {
	t.Helper()
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name) + ".>"}}
	if _, err := b.JS.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// run runs a monitor until the end of the test.
func run(t *testing.T, cfg storehealth.Config) *storehealth.Monitor {
	t.Helper()
	m := storehealth.NewMonitor(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

// fill writes until a write is not answered.
func fill(t *testing.T, b *testenv.Server, subject string) {
	t.Helper()
	for range 20 {
		_, err := b.NC.Request(subject, make([]byte, 900<<10), 2*time.Second)
		if errors.Is(err, nats.ErrTimeout) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("got answers to all writes, want the store to fail")
}

// A stream whose write has failed refuses all that follow, though nothing stands
// in their way any more, until the server is restarted.
func TestAMonitorKnowsWhichStreamsRefuseWrites(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	for _, name := range []string{"SWEPT", "SUSPECTED", "FINE"} {
		newStream(t, b, name)
	}
	mend := []func(){b.BreakStore("SWEPT"), b.BreakStore("SUSPECTED")}
	m := run(t, storehealth.Config{NC: b.NC, Streams: []string{"SWEPT", "FINE", "MISSING"}})
	fill(t, b, "swept.x")
	fill(t, b, "suspected.x")
	testenv.Eventually(t, "the swept stream is known to refuse writes", func() bool { return len(m.Failed()) == 1 })
	m.Suspect("SUSPECTED")
	m.Suspect("FINE")
	testenv.Eventually(t, "both are known to refuse writes", func() bool { return len(m.Failed()) == 2 })
	failed := m.Failed()
	if failed[0].Stream != "SUSPECTED" || !strings.HasSuffix(failed[0].Reason, "is a directory") || failed[1].Stream != "SWEPT" {
		t.Errorf("got %+v, want both and the server's reason", failed)
	}
	if got, want := storehealth.Summary(failed), "2 streams refuse writes (write error)"; got != want {
		t.Errorf("got %q, want %q: no name and no path", got, want)
	}
	for _, f := range mend {
		f()
	}
	if f, err := storehealth.Check(t.Context(), b.NC, "SWEPT"); err != nil || f == nil {
		t.Errorf("mended: got %v, %v, want still a failure", f, err)
	}
	b.Stop()
	b.Start()
	testenv.Eventually(t, "none refuses writes", func() bool { return len(m.Failed()) == 0 })
}

func TestCause(t *testing.T) {
	for reason, want := range map[string]string{
		"write /data/jetstream/1.blk: no space left on device": "no space left on device",
		"open /data/x: too many open files":                    "too many open files",
		"something about /secret":                              "write error",
	} {
		if got := (storehealth.Failure{Reason: reason}).Cause(); got != want {
			t.Errorf("%s: got %q, want %q", reason, got, want)
		}
	}
	if got := storehealth.Summary(nil); got != "" {
		t.Errorf("none: got %q", got)
	}
	one := []storehealth.Failure{{Stream: "S", Reason: "write x: no space left on device"}}
	if got, want := storehealth.Summary(one), "1 stream refuses writes (no space left on device)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
