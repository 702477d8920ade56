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
)

// twin is another instance of the API on the same bus, with the log of events.
func (s *system) twin() *system {
	s.t.Helper()
	o := *s
	o.conn = s.bus.Connect(s.t)
	served, err := queue.New(s.t.Context(), o.conn, queue.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	background(s.t, served.Run)
	o.serve(Config{}, Deps{Queue: served, Registry: s.registry, Events: s.at.Events(s.t)})
	return &o
}

// shorten gives the endpoint a retention and waits until that is known.
func (s *system) shorten(retention time.Duration) {
	s.t.Helper()
	changed, err := s.registry.Endpoints.Update(s.t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.Retention, e.SyncRetention = retention, retention
		return e, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "the retention is known", patience, func() bool {
		e, err := s.registry.Endpoints.Get(s.t.Context(), "ep")
		return err == nil && e.Version == changed.Version
	})
}

// worker completes every job with its run's number and counts the runs by job.
func (s *system) worker() (runs func() map[job.ID]int) {
	s.t.Helper()
	var mu sync.Mutex
	seen := map[job.ID]int{}
	taker, err := s.queue.Take(s.t.Context(), s.endpoint, "worker", 4)
	if err != nil {
		s.t.Fatal(err)
	}
	background(s.t, func(ctx context.Context) error {
		defer taker.Close()
		for {
			l, err := taker.Next(ctx)
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
func (s *system) forget(id string) {
	s.t.Helper()
	log := s.at.Events(s.t)
	q, err := queue.New(s.t.Context(), s.bus.NC, queue.Config{ForgetGrace: time.Millisecond})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	err = q.Facts(ctx, 0, 0, func(f queue.Fact) error {
		if string(f.Job.ID) != id || !f.Job.Status.Terminal() {
			return nil
		}
		if err := log.Append(ctx, eventOf(f.Job)); err != nil {
			return err
		}
		eventually(s.t, "the record is gone", patience, func() bool {
			done, err := q.Forget(ctx, 0, f.Seq)
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
