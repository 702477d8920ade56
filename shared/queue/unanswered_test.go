package queue

import (
	"context"
	"errors"
	"testing"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A pick-up may be stored while its answer does not come in time, as when the disk stands still
// or the server is frozen. The worker lives and runs nothing: it is not lost.
func TestAPickUpWithoutAnAnswerLosesNoWorker(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	first := s.consumer(t, s.queue(t, Config{Durable: func(_ context.Context, stream string) error {
		if stream == streams.Records(0) {
			return bus.ErrUnavailable
		}
		return nil
	}}), "first")
	ended := make(chan error, 1)
	go func() { _, err := first.Next(t.Context()); ended <- err }()
	testenv.Eventually(t, "the pick-up is stored", func() bool { return s.status(t, id).Status == job.InProgress })
	first.Close() // else it might get the job again itself
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v, want no job", err)
	}
	if l := next(t, s.consumer(t, s.q, "second")); l.Job.ID != id || l.Job.Lost != 0 {
		t.Errorf("got the job %s that lost %d workers, want %s and none", l.Job.ID, l.Job.Lost, id)
	}
}
