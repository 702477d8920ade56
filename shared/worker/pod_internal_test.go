package worker

import (
	"log/slog"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestAPodThatWasTakenForGoneComesBackAfterASilence(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	reg, err := registry.New(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	status := func() pod.Status {
		t.Helper()
		got, err := reg.Pods.Get(t.Context(), "pod-1")
		if err != nil {
			t.Fatal(err)
		}
		return got.Status
	}
	own := pod.Pod{ID: "pod-1", Endpoint: "ep", Started: time.Now().UTC()}
	mine, err := registry.NewForWorker(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := newPresence(mine, endpoint.Endpoint{ID: "ep"}, own, Config{Concurrency: 1, Log: slog.New(slog.DiscardHandler)}, time.Now)
	p.beat(t.Context())
	if _, err := reg.Pods.Move(t.Context(), "pod-1", pod.Exit, "it fell silent", time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	p.beat(t.Context())
	if got := status(); got != pod.Exited {
		t.Errorf("got %s, want no look at the record while it is heard", got)
	}
	p.heard = p.heard.Add(-maxBeatGap)
	p.beat(t.Context())
	if got := status(); got != pod.Running {
		t.Errorf("after a silence: got %s, want RUNNING", got)
	}
	p.leave(t.Context())
	if got := status(); got != pod.Exited {
		t.Errorf("after it left: got %s, want EXITED", got)
	}
}
