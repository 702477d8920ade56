package recorder

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

// idle is a recorder that does nothing by itself, with a queue of its own.
func (s *env) idle(t *testing.T, cfg queue.Config) *Service {
	t.Helper()
	nc := s.Connect(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	log, err := events.New(nc, js, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{}, Deps{Queue: s.queue(t, nc, cfg), Events: log})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// begin runs a session on the first partition until stop is called.
func (r *Service) begin(t *testing.T, removals *removalQueue) (stop func()) {
	t.Helper()
	return testenv.Background(t, func(ctx context.Context) error {
		if err := r.session(ctx, r.events.Server(), removals); ctx.Err() == nil {
			return err
		}
		return nil
	})
}

func TestTheLagIsTheAgeOfWhatIsNotRecorded(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	r := s.idle(t, queue.Config{})
	lagIs := func(what string, right func(Lag) bool) {
		t.Helper()
		testenv.EventuallyNone(t, func() string {
			lag, err := r.Lag(t.Context())
			if err != nil || !right(lag) {
				return fmt.Sprintf("%s: got %+v, %v", what, lag, err)
			}
			return ""
		})
	}
	lagIs("no lag without jobs", func(l Lag) bool { return l == Lag{} })
	s.play(t, len(lives))
	lagIs("it grows while nothing is recorded", func(l Lag) bool { return l.Age > time.Second && l.Age < patience && l.Writes > 0 })
	testenv.Background(t, r.Run)
	lagIs("no lag when all is recorded", func(l Lag) bool { return l == Lag{} })
}

// After a power loss a store may have less than what was recorded of it; what
// comes then has the sequences of what was lost.
func TestASessionOnAStoreThatWentBackSkipsNothing(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	r := s.idle(t, queue.Config{})
	s.play(t, len(lives))
	r.parts[0].noteSaved(events.Checkpoint{Records: 1 << 20})
	stop := r.begin(t, newRemovalQueue(r))
	testenv.EventuallyNone(t, func() string {
		if got := s.told(t); len(got) < len(s.want) {
			return fmt.Sprintf("got %d attempts of %d", len(got), len(s.want))
		}
		return ""
	})
	stop()
}

// A session that fails before it has written its position is repeated.
func TestARepeatedSessionKnowsEachEndOnce(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	r := s.idle(t, queue.Config{})
	s.play(t, len(lives))
	last, err := r.queue.Changes.Last(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	p, removals := &r.parts[0], newRemovalQueue(r)
	removals.push(due{seq: 1, partition: 1}) // another's
	for range 3 {
		p.start(events.Checkpoint{})
		stop := r.begin(t, removals)
		testenv.EventuallyNone(t, func() string {
			oldest, err := r.queue.Changes.Oldest(t.Context(), 0, p.done.Load())
			if err != nil || !oldest.IsZero() {
				return fmt.Sprintf("at %d of %d, %v", p.done.Load(), last, err)
			}
			return ""
		})
		stop()
		if got, want := len(removals.entries), 1+len(s.want); got != want {
			t.Errorf("got %d ends, want %d", got, want)
		}
	}
}

// One end that cannot be announced must not break off the copies of another's
// payloads: the next try would have as much to do again.
func TestAnAnnouncementThatIsUnderWayFinishes(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	copying := make(chan struct{}, 1)
	r := s.idle(t, queue.Config{Durable: func(ctx context.Context, stream string) error {
		if stream == streams.Payloads(0) {
			copying <- struct{}{}
			select {
			case <-time.After(500 * time.Millisecond): // the other one has failed
			case <-ctx.Done():
			}
		}
		return ctx.Err()
	}})
	s.play(t, 1)
	good := firstEnd(t, r)
	if !good.ExternalPayload {
		t.Fatalf("got %+v, want payloads to copy", good)
	}
	bad := good
	bad.Partition = 9 // which there is not
	w := writerOf(t, r)
	testenv.Eventually(t, "copies that begin before the other one fails", func() bool {
		if err := w.announce(t.Context(), []queue.RecordChange{good, bad}, maxConcurrentCopies); err == nil {
			t.Fatal("what cannot be read was announced")
		}
		return len(copying) > 0
	})
	if wrong := s.copies(t); len(wrong) > 0 {
		t.Error(wrong)
	}
	if waiting, err := s.beside(t, streams.Webhooks, "webhooks.>"); err != nil || len(waiting) != 1 {
		t.Errorf("got %v, %v, want the good one", waiting, err)
	}
}

// firstEnd is the first change of a record that a recorder sees: an end to announce.
func firstEnd(t *testing.T, r *Service) (end queue.RecordChange) {
	t.Helper()
	enough := errors.New("enough")
	if err := r.queue.Changes.Follow(t.Context(), 0, 0, func(f queue.RecordChange) error {
		end = f
		return enough
	}); !errors.Is(err, enough) || !end.Job.Status.Terminal() || !toAnnounce(end) {
		t.Fatalf("got %+v, %v", end, err)
	}
	return end
}

// A copy that fails, again and again, keeps neither the events of other jobs
// nor has their webhooks repeated; a job's own facts stay in their order.
func TestWhatNeedsNoCopyIsToldFirst(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	r := s.idle(t, queue.Config{})
	s.play(t, 1)
	end := firstEnd(t, r)
	if !end.ExternalPayload {
		t.Fatalf("got %+v, want payloads to copy", end)
	}
	bad, quiet := end, end
	bad.Job.ID, quiet.Job.ID, quiet.Job.Webhook = queue.NewID(job.Async), queue.NewID(job.Async), ""
	bad.Partition = 9 // which there is not
	again := bad
	again.Job.Attempt, again.Job.Webhook = 2, ""
	w := writerOf(t, r)
	if err := w.record(t.Context(), []queue.RecordChange{bad, again, quiet}); err == nil {
		t.Fatal("what cannot be read was announced")
	}
	for _, c := range []struct {
		fact queue.RecordChange
		want bool
	}{{quiet, true}, {bad, false}, {again, false}} {
		got, err := w.endIsLogged(t.Context(), c.fact)
		if err != nil || got != c.want {
			t.Errorf("attempt %d of %s: told %v, %v, want %v", c.fact.Job.Attempt, c.fact.Job.ID, got, err, c.want)
		}
	}
	if done := w.p.done.Load(); done != 0 {
		t.Errorf("got that all up to %d is recorded", done)
	}
}

// What is recorded together with an end that cannot be announced is recorded again. A webhook
// that was delivered meanwhile is not sent again each time.
func TestAnEndIsAnnouncedOnceThoughItIsRecordedAgain(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	r := s.idle(t, queue.Config{})
	s.play(t, 1)
	good := firstEnd(t, r)
	bad := good
	bad.Job.ID, bad.Partition = queue.NewID(job.Async), 9 // which there is not
	webhooks, err := s.JS.Stream(t.Context(), streams.Webhooks)
	if err != nil {
		t.Fatal(err)
	}
	for session := range 2 {
		w := writerOf(t, r)
		if err := w.recordChanges(t.Context(), []queue.RecordChange{good, bad}, 1); err == nil {
			t.Fatal("what cannot be read was announced")
		}
		info, err := webhooks.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := info.State.LastSeq; got != 1 {
			t.Errorf("session %d: got %d webhooks queued so far, want one", session+1, got)
		}
		if err := webhooks.Purge(t.Context()); err != nil { // it is delivered
			t.Fatal(err)
		}
	}
	w := writerOf(t, r)
	if err := w.recordChanges(t.Context(), []queue.RecordChange{good}, 1); err != nil || len(w.p.announced) != 0 {
		t.Errorf("got %v and %d ends to remember once the log has them, want none", err, len(w.p.announced))
	}
}
