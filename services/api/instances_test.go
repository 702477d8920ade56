package api

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
)

// twin is another instance of the API on the same bus, with the log of events.
func (s *env) twin() *env {
	s.t.Helper()
	o := *s
	o.conn = s.bus.Connect(s.t)
	served, err := queue.New(s.t.Context(), o.conn, queue.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	testenv.Background(s.t, served.Run)
	o.serve(Config{}, Deps{Queue: served, Registry: s.registry, Events: s.at.Events(s.t)})
	return &o
}

// shorten gives the endpoint a retention and waits until that is known.
func (s *env) shorten(retention time.Duration) {
	s.t.Helper()
	changed, err := s.registry.Endpoints.Update(s.t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.Retention, e.SyncRetention = retention, retention
		return e, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	testenv.Eventually(s.t, "the retention is known", func() bool {
		e, err := s.registry.Endpoints.Get(s.t.Context(), "ep")
		return err == nil && e.Version == changed.Version
	})
}

// worker completes every job with its run's number and counts the runs by job.
func (s *env) worker() (runs func() map[job.ID]int) {
	s.t.Helper()
	var mu sync.Mutex
	seen := map[job.ID]int{}
	consumer, err := s.queue.Consume(s.t.Context(), s.endpoint, "worker", 4)
	if err != nil {
		s.t.Fatal(err)
	}
	testenv.Background(s.t, func(ctx context.Context) error {
		defer consumer.Close()
		for {
			l, err := consumer.Next(ctx)
			if err != nil {
				return err
			}
			mu.Lock()
			seen[l.Job.ID]++
			mu.Unlock()
			if _, err := l.Complete(ctx, json.RawMessage(`{"done":true}`)); err != nil {
				return err
			}
		}
	})
	return func() map[job.ID]int { mu.Lock(); defer mu.Unlock(); return maps.Clone(seen) }
}

// forget does what the recorder does once a job's retention is over.
func (s *env) forget(id string) {
	s.t.Helper()
	log := s.at.Events(s.t)
	q, err := queue.New(s.t.Context(), s.bus.NC, queue.Config{RemovalGrace: time.Millisecond})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	err = q.Changes.Follow(ctx, 0, 0, func(f queue.RecordChange) error {
		if string(f.Job.ID) != id || !f.Job.Status.Terminal() {
			return nil
		}
		if err := log.Append(ctx, eventOf(f.Job)); err != nil {
			return err
		}
		testenv.Eventually(s.t, "the record is gone", func() bool {
			done, err := q.Changes.Remove(ctx, 0, f.Seq)
			return err == nil && done
		})
		cancel()
		return nil
	})
	if err != nil || ctx.Err() == context.DeadlineExceeded {
		s.t.Fatalf("job %s is not forgotten: %v", id, err)
	}
}

func eventOf(j job.Job) events.Event {
	return events.Event{
		Kind: events.KindOf(j.Status), Endpoint: j.Endpoint, Job: j.ID, Attempt: j.Attempt, Run: j.Run, At: j.Finished,
		Mode: j.Mode, Class: j.Class, Status: j.Status, Submitted: j.Submitted, Queued: j.Queued, Started: j.Started,
		Finished: j.Finished, Expires: j.Expires, RetainUntil: j.RetainUntil,
	}
}
