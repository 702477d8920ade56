package deliveries

import (
	"fmt"
	"testing"

	"flightline/shared/job"
	"flightline/streams"
)

// Webhooks that wait for a paused destination cannot fill the disk.
func TestTrimUndelivered(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	for i := range 100 {
		if _, err := s.JS.Publish(t.Context(), streams.UndeliveredSubject("ep", "job", i+1), fmt.Appendf(nil, `{"i":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	if removed, err := s.d.TrimUndelivered(t.Context(), 1<<20); err != nil || removed != 0 {
		t.Errorf("got %d removed, %v, want none while there is room", removed, err)
	}
	if removed, err := s.d.TrimUndelivered(t.Context(), 2000); err != nil || removed < 50 || removed > 90 {
		t.Errorf("got %d removed, %v", removed, err)
	}
	if _, err := s.d.bus.LeaderLast(t.Context(), streams.Undelivered, streams.UndeliveredSubject("ep", "job", 100)); err != nil {
		t.Errorf("got %v, want the newest kept", err)
	}
}

// The log of deliveries is kept below a bound; the newest stay.
func TestTrimDeliveries(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	for i := range 100 {
		if _, err := s.JS.Publish(t.Context(), streams.DeliverySubject("ep", "job", i+1), fmt.Appendf(nil, `{"try":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	if removed, err := s.d.Trim(t.Context(), 2000); err != nil || removed < 50 || removed > 90 {
		t.Errorf("got %d removed, %v", removed, err)
	}
	if got := s.Messages(t, streams.Deliveries); got < 10 || got > 50 {
		t.Errorf("got %d left", got)
	}
	last, err := s.d.Last(t.Context(), &Task{Job: job.Job{Endpoint: "ep", ID: "job", Attempt: 100}})
	if err != nil || last.Try != 99 {
		t.Errorf("got %+v, %v, want the newest", last, err)
	}
}
