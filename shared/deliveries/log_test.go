package deliveries

import (
	"fmt"
	"testing"
	"time"

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

// One attempt that cannot be decoded keeps no other from being listed, nor its own webhook
// from being tried.
func TestAnAttemptThatCannotBeDecodedIsLeftOut(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.ended(t, `{}`)
	c := nextTask(t, s.tasks(t))
	good := Attempt{Endpoint: "ep", Job: "other", Attempt: 1, Try: 1, Outcome: Delivered, Started: time.Now()}
	if err := s.d.Append(t.Context(), good, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.JS.Publish(t.Context(), streams.DeliverySubject("ep", id, 1), []byte(`{"try":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if list, _, err := s.d.List(t.Context(), "ep", Query{Most: 10}); err != nil || len(list) != 1 || list[0].Job != good.Job {
		t.Errorf("got %+v, %v, want the other one", list, err)
	}
	last, err := s.d.Last(t.Context(), c)
	if err != nil || last.Outcome != Failed || last.Seq == 0 {
		t.Fatalf("got %+v, %v, want one that failed", last, err)
	}
	next := Attempt{Endpoint: "ep", Job: id, Attempt: 1, Try: last.Try + 1, Outcome: Delivered, Started: time.Now()}
	if err := s.d.Append(t.Context(), next, last.Seq); err != nil {
		t.Fatal(err)
	}
	if list, _, err := s.d.List(t.Context(), "ep", Query{Job: id, Most: 10}); err != nil || len(list) != 1 || list[0].Try != 1 {
		t.Errorf("of the job: got %+v, %v, want the next attempt", list, err)
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
