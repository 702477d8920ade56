package registry

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/streams"
)

// What gave way to a newer message of its key comes back when the newer one
// expires and the server is killed then (docs/adr/0013).
func TestADestinationThatWasResumedIsNotPausedAfterAKill(t *testing.T) {
	t.Parallel()
	const origin = "http://h:80"
	pause := func(d *Destinations) error {
		_, err := d.Pause(t.Context(), "ep", origin, "x", time.Now())
		return err
	}
	fail := func(d *Destinations) error {
		_, err := d.GaveUp(t.Context(), "ep", origin, FailurePolicy{}, "x", time.Now())
		return err
	}
	resume := func(d *Destinations) error { return d.Resume(t.Context(), "ep", origin) }
	answer := func(d *Destinations) error { return d.Answered(t.Context(), "ep", origin) }
	drop := func(d *Destinations) error { return d.Drop(t.Context(), "ep") }
	for name, steps := range map[string][]func(*Destinations) error{
		"resumed":                      {pause, resume},
		"failed, paused and resumed":   {fail, pause, fail, resume},
		"its endpoint was deleted":     {pause, drop},
		"failed since, and answered":   {pause, resume, fail, answer},
		"failed since, and is dropped": {pause, resume, fail, drop},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, r := newRegistry(t)
			d := r.Destinations
			d.table.ttl = time.Second
			if _, err := d.Pause(t.Context(), "other", origin, "x", time.Now()); err != nil { // it keeps the file
				t.Fatal(err)
			}
			for _, step := range steps {
				if err := step(d); err != nil {
					t.Fatal(err)
				}
			}
			waitUntilExpired(t, d.table.Table, destinationKey("ep", origin))
			b.Kill()
			b.Start()
			got, err := d.Find(t.Context(), "ep", origin)
			for errors.Is(err, bus.ErrUnavailable) { // the connection is not back
				got, err = d.Find(t.Context(), "ep", origin)
			}
			if err != nil || got.Paused {
				t.Errorf("got %+v, %v, want it not paused", got, err)
			}
		})
	}
}

// waitUntilExpired returns once the key's last message is gone, at once if it
// has no ttl.
func waitUntilExpired[T any](t *testing.T, table *Table[T], key string) {
	t.Helper()
	for {
		m, err := table.bus.LeaderLast(t.Context(), streams.Bucket(table.bucket), table.subject+key)
		switch {
		case errors.Is(err, bus.ErrNoMessage) || err == nil && m.Header.Get(jetstream.MsgTTLHeader) == "":
			return
		case err != nil:
			t.Fatal(err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}
