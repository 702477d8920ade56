package registry

import (
	"testing"
	"time"

	"flightline/shared/testenv"
)

// A worker that was not heard of because the bus was away is not known to be gone until
// it has had the time to speak.
func TestAfterAnOutageItIsNotKnownWhetherAWorkerLives(t *testing.T) {
	t.Parallel()
	b, r := newRegistry(t)
	go func() { _ = r.Run(t.Context()) }()
	if err := r.Workers.Beat(t.Context(), Worker{ID: "w", Endpoint: "ep", State: WorkerIdle}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the worker is known to live", func() bool {
		h := r.Workers.Last("ep", "w")
		return !h.Unknown && !h.Silent() && !h.Worker.Seen.IsZero()
	})
	b.Stop()
	testenv.Eventually(t, "it is not known any more", func() bool { return r.Workers.Last("ep", "w").Unknown })
	long := time.Now().Add(-silenceTimeout)
	c := r.Workers.cache
	c.mu.Lock()
	for key, e := range c.entries {
		e.received = long
		c.entries[key] = e
	}
	c.begun = long
	c.mu.Unlock()
	b.Start()
	testenv.Eventually(t, "the bucket is followed again", func() bool {
		_, vouched := c.version()
		return vouched
	})
	if h := r.Workers.Last("ep", "w"); h.Silent() { // known to live if the watch had to begin again: its heartbeat came with that
		t.Errorf("got %+v, want that it is not known to be gone", h)
	}
}
