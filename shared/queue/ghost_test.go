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

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
)

// hauntable makes a queue that forgets soon, and a job that runs there.
func hauntable(t *testing.T) (s *env, q *Queue, l *Lease) {
	t.Helper()
	s = newEnv(t, func(e *endpoint.Endpoint) { e.Retention, e.Lease = 3*time.Second, time.Minute })
	q = s.queue(t, Config{RemovalGrace: time.Millisecond})
	s.submit(t)
	return s, q, next(t, s.consumer(t, s.q, "w"))
}

// written is the last write of the job's record, as a killed server brings it back.
func (s *env) written(t *testing.T, j *job.Job) *nats.Msg {
	t.Helper()
	stream, err := s.JS.Stream(t.Context(), streams.Records(0))
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetLastMsgForSubject(t.Context(), streams.RecordSubject(0, j.Endpoint, j.ID, j.Attempt))
	if err != nil {
		t.Fatal(err)
	}
	back := nats.NewMsg(m.Subject)
	back.Data, back.Header[record.MetaHeader], back.Header[record.ChangeHeader] = m.Data, m.Header[record.MetaHeader], m.Header[record.ChangeHeader]
	return back
}

func TestAGhostIsNotTakenForTheLiving(t *testing.T) {
	t.Parallel()
	s, q, l := hauntable(t)
	ghost := s.written(t, &l.Job)
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, q, 0, over(l.Job.ID))
	s.forget(t, q, facts[len(facts)-1])
	gone := func() bool { return s.Messages(t, streams.Records(0)) == 0 }
	tests := map[string]func() error{
		"its status":  func() error { _, err := q.Status(t.Context(), s.e, l.Job.ID); return err },
		"its cancel":  func() error { _, err := q.Cancel(t.Context(), s.e, l.Job.ID); return err },
		"another ttl": func() error { _, err := q.SetTTL(t.Context(), s.e, l.Job.ID, time.Hour); return err },
		"its old timeout": func() error {
			r, err := q.read.record(t.Context(), record.LocationOf(s.e), l.Job.ID, 1)
			if err != nil {
				return err
			}
			_, err = q.timeOut(t.Context(), record.LocationOf(s.e), r)
			return err
		},
	}
	for name, look := range tests {
		if _, err := s.JS.PublishMsg(t.Context(), ghost); err != nil {
			t.Fatal(err)
		}
		if err := look(); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("%s: got %v, want job.ErrNotFound", name, err)
		}
		if !gone() {
			t.Errorf("%s: the ghost was not removed", name)
		}
	}
}

func TestARunThatLastsIsNoGhost(t *testing.T) {
	t.Parallel()
	s, q, l := hauntable(t)
	testenv.Eventually(t, "the run is older than a ghost could be", func() bool {
		return q.Now().Sub(l.Job.Started) > endpoint.MinRetention+time.Second
	})
	if j, err := q.Status(t.Context(), s.e, l.Job.ID); err != nil || j.Status != job.InProgress {
		t.Errorf("got %+v, %v; want it IN_PROGRESS", j, err)
	}
	if _, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Errorf("its result: %v", err)
	}
}

// What lives without its queue message cannot be distinguished from a ghost, so its
// record is not removed at all.
func TestRecordsWhoseMessageProvesNothingAreKept(t *testing.T) {
	t.Parallel()
	big := json.RawMessage(`{"x":"` + strings.Repeat("x", 300<<10) + `"}`)
	for name, running := range map[string]bool{"its message was replaced": false, "it was detached": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, func(e *endpoint.Endpoint) { e.Retention, e.TTL = time.Second, time.Minute })
			q := s.queue(t, Config{RemovalGrace: time.Millisecond})
			id := s.submit(t, func(r *job.Request) { r.Input = big })
			longer := func() {
				if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			if !running {
				longer()
			}
			l := next(t, s.consumer(t, s.q, "w"))
			if running {
				longer()
			}
			if err := l.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Complete(t.Context(), big); err != nil {
				t.Fatal(err)
			}
			facts := factsOf(t, q, 0, over(id))
			s.forget(t, q, facts[len(facts)-1])
			if n := s.Messages(t, streams.Records(0)); n != 1 {
				t.Errorf("got %d records, want the one kept", n)
			}
			if n := s.Messages(t, streams.Payloads(0)); n != 0 {
				t.Errorf("got %d messages of payloads left", n)
			}
			if _, err := s.q.Status(t.Context(), s.e, id); !errors.Is(err, job.ErrNotFound) {
				t.Errorf("got %v, want it hidden", err)
			}
		})
	}
}

// With the last attempt forgotten, the one before must not be what is shown.
func TestForgetTakesEarlierAttemptsAlong(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Retention = time.Hour })
	q := s.queue(t, Config{RemovalGrace: time.Millisecond})
	consumer := s.consumer(t, s.q, "w")
	id := s.submit(t)
	if _, err := next(t, consumer).Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := next(t, consumer).Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Millisecond); !errors.Is(err, job.ErrNotFound) {
		t.Fatalf("got %v, want the job over", err)
	}
	facts := factsOf(t, q, 0, func(f RecordChange) bool { return f.Job.Attempt == 2 && f.Touch })
	s.forget(t, q, facts[len(facts)-1])
	if n := s.Messages(t, streams.Records(0)); n != 1 {
		t.Errorf("got %d records, want that of the last attempt kept", n)
	}
	if _, err := s.q.Status(t.Context(), s.e, id); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("got %v, want the job gone", err)
	}
}

// A killed server brings an earlier attempt back as its end was written first. So
// its record stays after its ttl was changed, and the record that hides it too.
func TestForgetKeepsAnEarlierAttemptWhoseTTLWasChanged(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Retention = 3 * time.Second })
	q := s.queue(t, Config{RemovalGrace: time.Millisecond})
	id := s.submit(t)
	if _, err := next(t, s.consumer(t, s.q, "w")).Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, q, 0, func(f RecordChange) bool { return f.Job.Attempt == 2 && f.Job.Status == job.Cancelled })
	s.forget(t, q, facts[len(facts)-1])
	if n := s.Messages(t, streams.Records(0)); n != 2 {
		t.Errorf("got %d records, want those of both attempts", n)
	}
	if _, err := s.q.Status(t.Context(), s.e, id); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("got %v, want job.ErrNotFound", err)
	}
}

// A later attempt that waits says no more for the life of an earlier one than
// an empty queue does.
func TestAGhostBehindALaterAttemptIsKnown(t *testing.T) {
	t.Parallel()
	s, q, l := hauntable(t)
	ghost := s.written(t, &l.Job)
	if _, err := l.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, q, 0, over(l.Job.ID))
	if _, err := q.Retry(t.Context(), s.e, l.Job.ID, ""); err != nil {
		t.Fatal(err)
	}
	s.forget(t, q, facts[len(facts)-1])
	tests := map[string]func() error{
		"its status": func() error {
			j, err := q.Status(t.Context(), s.e, l.Job.ID)
			if err == nil && (j.Status != job.InQueue || j.Attempt != 2) {
				t.Errorf("got %+v, want the attempt that waits", j)
			}
			return err
		},
		"its old timeout": func() error {
			r, err := q.read.record(t.Context(), record.LocationOf(s.e), l.Job.ID, 1)
			if err != nil {
				return err
			}
			if _, err = q.timeOut(t.Context(), record.LocationOf(s.e), r); !errors.Is(err, job.ErrNotFound) {
				t.Errorf("got %v, want job.ErrNotFound", err)
			}
			return nil
		},
	}
	for name, look := range tests {
		if _, err := s.JS.PublishMsg(t.Context(), ghost); err != nil {
			t.Fatal(err)
		}
		if err := look(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := s.Messages(t, streams.Records(0)); n != 0 {
			t.Errorf("%s: got %d records, want the ghost removed", name, n)
		}
	}
	if j, err := q.Cancel(t.Context(), s.e, l.Job.ID); err != nil || j.Attempt != 2 {
		t.Errorf("got %+v, %v; want the attempt that waits cancelled", j, err)
	}
}

// A server cuts a damaged file off when it first reads it, and then gives the
// sequences of what was there to new messages. That a job's message is not in the
// queue any more proves nothing then: the job runs.
func TestARunWhoseQueueWasCutOffIsNoGhost(t *testing.T) {
	t.Parallel()
	s, q, l := hauntable(t)
	for range 20 {
		s.submit(t)
	}
	s.Stop()
	blocks, err := filepath.Glob(filepath.Join(s.StreamDir(streams.Jobs(s.e.ID)), "msgs", "*.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatalf("got %v, %v, want one block", blocks, err)
	}
	data, err := os.ReadFile(blocks[0])
	if err == nil {
		copy(data, []byte{0xff, 0xff, 0xff, 0x7f}) // the length of the first record
		err = os.WriteFile(blocks[0], data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	for range 30 {
		s.submit(t)
	}
	testenv.Eventually(t, "the run is older than a ghost could be", func() bool {
		return q.Now().Sub(l.Job.Started) > endpoint.MinRetention+time.Second
	})
	if j, err := q.Status(t.Context(), s.e, l.Job.ID); err != nil || j.Status != job.InProgress {
		t.Errorf("got %+v, %v, want that it runs", j, err)
	}
}
