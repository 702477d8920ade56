package queue

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

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
	var removed atomic.Int64
	p := &purge{q: s.q, at: at, removed: &removed}
	if running, err := p.end(t.Context(), lost); running || err != nil || removed.Load() != 1 {
		t.Errorf("got %v, %v and %d removed, want one", running, err, removed.Load())
	}
	s.want(t, id, job.Cancelled)
	stream, err := s.JS.Stream(t.Context(), streams.Records(0))
	if err == nil {
		err = stream.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if running, err := p.end(t.Context(), &again); running || err != nil || removed.Load() != 1 {
		t.Errorf("a job that is gone: got %v, %v and %d removed, want no change", running, err, removed.Load())
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
