package queue

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
)

// register stores the endpoint in its bucket, as control does.
func (s *env) register(t *testing.T) {
	t.Helper()
	kv, err := s.JS.KeyValue(t.Context(), streams.BucketEndpoints)
	if err != nil {
		t.Fatal(err)
	}
	s.e.QueueMade = true
	value, err := json.Marshal(s.e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), s.e.ID, value); err != nil {
		t.Fatal(err)
	}
}

// An endpoint has a record before it has a queue, and counts are asked for at
// once: that is no alarm.
func TestAQueueThatIsNotMadeYetIsNoAlarm(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.e.ID = "new"
	value, err := json.Marshal(s.e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.JS.Publish(t.Context(), streams.KeySubject(streams.BucketEndpoints, s.e.ID), value); err != nil {
		t.Fatal(err)
	}
	_, err = s.q.Counts.StatsNow(t.Context(), s.e)
	if missing, ok := errors.AsType[*bus.MissingError](err); !ok || !missing.Changing {
		t.Errorf("got %v, want a bus.MissingError of an endpoint that is being made", err)
	}
	if got := s.q.Missing(); len(got) > 0 {
		t.Errorf("got an alarm for %v, want none", got)
	}
	s.register(t)
	if _, err := s.q.Counts.StatsNow(t.Context(), s.e); !errors.Is(err, bus.ErrMissing) {
		t.Errorf("made before: got %v, want bus.ErrMissing", err)
	}
	if got := s.q.Missing(); len(got) != 1 {
		t.Errorf("made before: got alarms for %v, want one", got)
	}
}

// restart damages the files of the endpoint's queue while the server is stopped.
// It returns when the env and these queues are connected again.
func (s *env) restart(t *testing.T, damage func(dir string) error, queues ...*Queue) {
	t.Helper()
	back := []chan nats.Status{s.NC.StatusChanged(nats.CONNECTED)}
	for _, q := range append(queues, s.q) {
		back = append(back, q.nc.StatusChanged(nats.CONNECTED))
	}
	s.Stop()
	if err := damage(s.StreamDir(streams.Jobs(s.e.ID))); err != nil {
		t.Fatal(err)
	}
	s.Start()
	for _, connected := range back {
		<-connected
	}
}

// flipSettings flips one bit of a stream's settings: the server skips the stream.
func flipSettings(dir string) error {
	path := filepath.Join(dir, "meta.inf")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[len(data)/2] ^= 1
	return os.WriteFile(path, data, 0o600)
}

// oldRun is a job that has run for longer than a record is safe from removeResurrected.
func oldRun(t *testing.T) (s *env, q *Queue, l *Lease) {
	t.Helper()
	s = newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Minute })
	s.register(t)
	q = s.queue(t, Config{RemovalGrace: time.Millisecond})
	s.submit(t)
	l = next(t, s.consumer(t, s.q, "w"))
	testenv.Eventually(t, "the run is old", func() bool { return q.Now().Sub(l.Job.Started) > endpoint.MinRetention+time.Second })
	return s, q, l
}

// A queue that cannot be read is no empty queue: nothing is decided and nothing
// is removed until it is back, and then the result of the run counts.
func TestAMissingQueueRemovesNothing(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(string) error{"one bit of its settings": flipSettings, "all of its files": os.RemoveAll} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, q, l := oldRun(t)
			s.restart(t, damage, q)
			at, id := record.LocationOf(s.e), l.Job.ID
			for call, do := range map[string]func() error{
				"status": func() error { _, err := q.Status(t.Context(), s.e, id); return err },
				"cancel": func() error { _, err := q.Cancel(t.Context(), s.e, id); return err },
				"retry":  func() error { _, err := q.Retry(t.Context(), s.e, id, ""); return err },
				"ttl":    func() error { _, err := q.SetTTL(t.Context(), s.e, id, time.Hour); return err },
				"purge":  func() error { _, err := q.Purge(t.Context(), s.e); return err },
				"count":  func() error { _, err := q.Counts.StatsNow(t.Context(), s.e); return err },
				"list":   func() error { _, _, err := q.Lists.Live(t.Context(), s.e, ListOptions{Most: 1}); return err },
				"submit": func() error {
					_, err := q.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`1`)})
					return err
				},
				"timeout": func() error {
					r, err := q.read.record(t.Context(), at, id, 1)
					if err == nil {
						_, err = q.timeOut(t.Context(), at, r)
					}
					return err
				},
			} {
				err := do()
				missing, ok := errors.AsType[*bus.MissingError](err)
				if !ok || missing.Stream != streams.Jobs(s.e.ID) || !errors.Is(err, bus.ErrUnavailable) {
					t.Errorf("%s: got %v, want a bus.MissingError that names the queue", call, err)
				}
			}
			if got := q.Missing(); len(got) != 1 || got[0] != streams.Jobs(s.e.ID) {
				t.Errorf("got %v missing, want the queue", got)
			}
			if err := q.CreateEndpoint(t.Context(), s.e); err != nil {
				t.Fatal(err)
			}
			if j, err := q.Status(t.Context(), s.e, id); err != nil || j.Status != job.InProgress {
				t.Errorf("got %+v, %v; want the run kept", j, err)
			}
			if j, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil || j.Status != job.Completed {
				t.Errorf("got %+v, %v; want its result to count", j, err)
			}
		})
	}
}

// The settings are repaired for good when the queue is made again.
func TestARepairedQueueOutlivesTheNextStart(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.register(t)
	id := s.submit(t)
	s.restart(t, flipSettings)
	if err := s.q.CreateEndpoint(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	s.restart(t, func(string) error { return nil })
	s.want(t, id, job.InQueue)
	if l := next(t, s.consumer(t, s.q, "w")); l.Job.ID != id {
		t.Errorf("got %s, want the job that waited", l.Job.ID)
	}
}

// What ended while its queue is missing is not forgotten: its message may come
// back. The queue of an endpoint that was deleted is missing on purpose.
func TestForgetWaitsForAMissingQueue(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Retention = time.Second })
	s.register(t)
	q := s.queue(t, Config{RemovalGrace: time.Millisecond})
	s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s.restart(t, flipSettings, q)
	f := factsOf(t, q, 0, over(l.Job.ID))
	last := f[len(f)-1]
	testenv.Eventually(t, "its retention is over", func() bool { return q.Now().After(q.Changes.RemovableAt(&last.Job)) })
	if done, err := q.Changes.Remove(t.Context(), 0, last.Seq); done || !strings.Contains(err.Error(), streams.Jobs(s.e.ID)) {
		t.Fatalf("got %t, %v; want it kept", done, err)
	}
	kv, err := s.JS.KeyValue(t.Context(), streams.BucketEndpoints)
	if err == nil {
		err = kv.Purge(t.Context(), s.e.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.forget(t, q, last)
}
