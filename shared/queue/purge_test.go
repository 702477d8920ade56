package queue

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A write that came first may have failed, so that there is no record of it: the
// job still waits. One without a message either is gone.
func TestPurgeAfterAConflictWithAWriteThatFailed(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	at := record.LocationOf(s.e)
	lost, err := s.q.read.message(t.Context(), at, id)
	if err != nil {
		t.Fatal(err)
	}
	lost.Seq = 999 // as if a record had been there
	again := *lost
	p := &purge{q: s.q, at: at}
	if err := p.end(t.Context(), lost); err != nil || p.cancelled.Load() != 1 {
		t.Errorf("got %v and %d cancelled, want one", err, p.cancelled.Load())
	}
	s.want(t, id, job.Cancelled)
	stream, err := s.JS.Stream(t.Context(), streams.Records(0))
	if err == nil {
		err = stream.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.end(t.Context(), &again); err != nil || p.cancelled.Load() != 1 {
		t.Errorf("a job that is gone: got %v and %d cancelled, want no change", err, p.cancelled.Load())
	}
}

// The message of a job whose ttl is over may still be there.
func TestAPurgeDropsWhatIsOver(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Second); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the job is over", func() bool {
		_, err := s.q.Status(t.Context(), s.e, id)
		return errors.Is(err, job.ErrNotFound)
	})
	if n, err := s.q.Purge(t.Context(), s.e); n != 0 || err != nil {
		t.Errorf("got %d jobs and %v, want none", n, err)
	}
	if n := s.Messages(t, streams.Jobs(s.e.ID)); n != 0 {
		t.Errorf("got %d messages, want none", n)
	}
}

// One message that cannot be decoded keeps no other job from being cancelled, nor the
// endpoint from being deleted.
func TestAPurgePassesAMessageThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	for name, paused := range map[string]bool{"handed out": false, "read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			ids := []job.ID{s.submit(t)}
			if _, err := s.JS.Publish(t.Context(), streams.JobSubject(s.e.ID, job.Normal, "damaged"), []byte("x")); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, s.submit(t))
			if paused {
				s.pause(t, time.Hour)
			}
			if n, err := s.q.Purge(t.Context(), s.e); n != len(ids) || err != nil {
				t.Errorf("got %d jobs purged, %v, want %d", n, err, len(ids))
			}
			for _, id := range ids {
				s.want(t, id, job.Cancelled)
			}
			if n := s.Messages(t, streams.Jobs(s.e.ID)); n != 1 {
				t.Errorf("got %d messages, want the damaged one kept", n)
			}
			if err := s.q.DeleteEndpoint(t.Context(), s.e); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
	}
}

// A direct get may be answered by a replica that has none of the last jobs yet. The
// leader decides what is left: no job goes with its queue before it is cancelled.
func TestAPurgeDoesNotTrustAReplicaThatLags(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.pause(t, time.Hour) // no fetch brings these jobs
	s.replicaLags(t)
	s.want(t, s.submit(t), job.InQueue)
	if n, err := s.q.Purge(t.Context(), s.e); n != 1 || err != nil {
		t.Errorf("got %d jobs purged, %v, want one", n, err)
	}
	s.resume(t)
	id := s.submit(t)
	next(t, s.consumer(t, s.q, "w"))
	if err := s.q.DeleteEndpoint(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	s.want(t, id, job.Cancelled)
}

// replicaLags answers each batch that is read from the queue as a replica would that has
// no messages, and leaves other reads to the leader.
func (s *env) replicaLags(t *testing.T) {
	t.Helper()
	stream, err := s.JS.Stream(t.Context(), streams.Jobs(s.e.ID))
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.AllowDirect = false
	if _, err := s.JS.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	testenv.Handle(t, s.NC, bus.DirectGet(streams.Jobs(s.e.ID)), func(m *nats.Msg) {
		answer := nats.NewMsg(m.Reply)
		answer.Header.Set("Status", "500")
		if bytes.Contains(m.Data, []byte(`"batch":`)) {
			answer.Header.Set("Status", "404")
		}
		_ = m.RespondMsg(answer)
	})
}
