package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
)

// What a longer ttl would carry on may have gone already, because nobody asks
// for it any more.
func TestALongerTTLOfAnEndedJobWithoutItsInput(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	big := json.RawMessage(`{"x":"` + strings.Repeat("x", 300<<10) + `"}`)
	id := s.submit(t, func(r *job.Request) { r.Input, r.Webhook = big, "https://example.test/" })
	if _, err := next(t, s.consumer(t, s.q, "w")).Complete(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, s.q, 0, over(id))
	if err := s.q.Changes.RemoveUnneededInput(t.Context(), facts[len(facts)-1]); err != nil { // as the recorder does once the webhook has its copy
		t.Fatal(err)
	}
	j, err := s.q.SetTTL(t.Context(), s.e, id, s.e.TTL+time.Hour)
	if err != nil || string(j.Output) != string(big) {
		t.Fatalf("got %v, want the job with its output", err)
	}
}

// A longer ttl replaces the queue message; whatever ends the job then has to
// take the new one along.
func TestAJobWhoseMessageWasReplacedLeavesNoneBehind(t *testing.T) {
	t.Parallel()
	tests := map[string]func(s *env, id job.ID) error{
		"cancelled": func(s *env, id job.ID) error { _, err := s.q.Cancel(t.Context(), s.e, id); return err },
		"purged":    func(s *env, _ job.ID) error { _, err := s.q.Purge(t.Context(), s.e); return err },
		"expired": func(s *env, id job.ID) error {
			if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Nanosecond); !errors.Is(err, job.ErrNotFound) {
				return fmt.Errorf("got %w, want the job over", err)
			}
			return nil
		},
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := s.submit(t)
			if _, err := s.q.SetTTL(t.Context(), s.e, id, s.e.TTL+time.Hour); err != nil {
				t.Fatal(err)
			}
			if err := end(s, id); err != nil {
				t.Fatal(err)
			}
			if n := s.Messages(t, streams.Jobs(s.e.ID)); n != 0 {
				t.Errorf("got %d messages left in the queue", n)
			}
		})
	}
}

func TestTTLEndsAJobInAnyState(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	short := func(r *job.Request) { r.Policy.TTL = time.Second }
	w := s.consumer(t, s.q, "w")
	finished := s.submit(t, short)
	if _, err := next(t, w).Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	running := s.submit(t, short)
	l := next(t, w)
	waiting := s.submit(t, short)
	for _, id := range []job.ID{finished, running, waiting} {
		testenv.Eventually(t, "gone", func() bool {
			_, err := s.q.Status(t.Context(), s.e, id)
			return errors.Is(err, job.ErrNotFound)
		})
	}
	if _, err := l.Complete(t.Context(), nil); !errors.Is(err, ErrLost) {
		t.Errorf("complete after the ttl: %v", err)
	}
	s.empty(t)
}

func TestSetTTL(t *testing.T) {
	t.Parallel()
	t.Run("waiting, shorter", func(t *testing.T) {
		t.Parallel()
		s := newEnv(t)
		id := s.submit(t)
		j, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour)
		if err != nil || j.Status != job.InQueue || !j.Expires.Equal(j.Submitted.Add(time.Hour).Truncate(time.Millisecond)) && j.Expires.Sub(j.Submitted) != time.Hour {
			t.Fatalf("got %+v, %v", j, err)
		}
		consumer := s.consumer(t, s.q, "w")
		defer consumer.Close()
		l := next(t, consumer)
		if got := l.Job.Expires.Sub(l.Job.Submitted); got != time.Hour || string(l.Input) != `{"n":1}` {
			t.Errorf("runs with ttl %v and input %s", got, l.Input)
		}
		_, _ = l.Complete(t.Context(), nil)
	})
	t.Run("waiting, longer", func(t *testing.T) {
		t.Parallel()
		s := newEnv(t)
		big := json.RawMessage(`{"x":"` + strings.Repeat("z", 1<<20) + `"}`)
		id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 2 * time.Second; r.Input = big })
		if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "past the old ttl", func() bool { return s.q.Until(s.status(t, id).Submitted.Add(2500*time.Millisecond)) < 0 })
		consumer := s.consumer(t, s.q, "w")
		defer consumer.Close()
		l := next(t, consumer)
		if string(l.Input) != string(big) || l.Job.Run != 1 {
			t.Errorf("input %d bytes, run %d", len(l.Input), l.Job.Run)
		}
		_, _ = l.Complete(t.Context(), nil)
		s.want(t, id, job.Completed)
	})
	t.Run("running, longer", func(t *testing.T) {
		t.Parallel()
		s := newEnv(t)
		id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 2 * time.Second })
		consumer := s.consumer(t, s.q, "w")
		defer consumer.Close()
		l := next(t, consumer)
		if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "past the old ttl", func() bool { return s.q.Until(l.Job.Submitted.Add(2500*time.Millisecond)) < 0 })
		if err := l.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Fail(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
			t.Fatal(err)
		}
		if l := next(t, consumer); l.Job.Attempt != 2 || string(l.Input) != `{"n":1}` {
			t.Errorf("attempt %d input %s", l.Job.Attempt, l.Input)
		}
	})
	t.Run("over", func(t *testing.T) {
		t.Parallel()
		s := newEnv(t)
		id := s.submit(t)
		testenv.Eventually(t, "over", func() bool { return s.q.Until(s.status(t, id).Submitted.Add(time.Second)) < 0 })
		if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Second); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

func TestSilentHolderWithALongerTTLIsFailed(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.deadlines(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 2 * time.Second })
	next(t, s.consumer(t, s.q, "dies"))
	if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "failed", func() bool { return s.status(t, id).Status == job.Failed })
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
		t.Errorf("retry: %v", err)
	}
}

// The message of a run that is taken over goes with the ttl that it was published with:
// the record still has the input, and the holder's silence still ends the run.
func TestATakeoverWithALongerTTLKeepsTheInput(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 10 * time.Second })
	next(t, s.consumer(t, s.q, "dies"))
	if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
		t.Fatal(err)
	}
	if l := next(t, s.consumer(t, s.q, "dies too")); l.Job.Run != 2 || l.Job.Lost != 1 {
		t.Fatalf("got %+v, want the second run", l.Job)
	}
	s.empty(t)
	s.deadlines(t)
	testenv.Eventually(t, "failed", func() bool { return s.status(t, id).Status == job.Failed })
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
		t.Fatalf("retry: %v", err)
	}
	if l := next(t, s.consumer(t, s.q, "lives")); l.Job.Attempt != 2 || string(l.Input) != `{"n":1}` {
		t.Errorf("attempt %d has the input %s", l.Job.Attempt, l.Input)
	}
}

func TestGiveBackWithALongerTTL(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 2 * time.Second })
	l := next(t, s.consumer(t, s.q, "a"))
	if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := l.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "past the old ttl", func() bool { return s.q.Until(l.Job.Submitted.Add(2500*time.Millisecond)) < 0 })
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if j := s.status(t, id); j.Status != job.InQueue || !j.Deadline.IsZero() {
		t.Errorf("got %s with the deadline %s, want IN_QUEUE without one", j.Status, j.Deadline)
	}
	again := next(t, s.consumer(t, s.q, "b"))
	if again.Job.Lost != 0 || again.Job.Run != 2 {
		t.Errorf("lost %d run %d, want 0 and 2", again.Job.Lost, again.Job.Run)
	}
}

// The queue message has the age of the first ttl; nobody may meet it for ever.
func TestShorterTTLLeavesNothingInTheQueue(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	running := s.submit(t)
	next(t, s.consumer(t, s.q, "silent"))
	waiting := s.submit(t)
	for _, id := range []job.ID{running, waiting} {
		if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Second); err != nil && !errors.Is(err, job.ErrNotFound) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	consumer := s.consumer(t, s.q, "w")
	go func() {
		for ctx.Err() == nil {
			_, _ = consumer.Next(ctx) // it may still begin within the second; then it expires in its hands
		}
	}()
	testenv.Eventually(t, "both are gone", func() bool {
		for _, id := range []job.ID{running, waiting} {
			if _, err := s.q.Status(t.Context(), s.e, id); !errors.Is(err, job.ErrNotFound) {
				return false
			}
		}
		return true
	})
	consumer.Close()
	last := s.consumer(t, s.q, "last")
	go func() { _, _ = last.Next(ctx) }()
	s.empty(t)
}

// A retry and a ttl that cross: the last writer has seen the other.
func TestATTLSetWhileTheJobIsRetriedHolds(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	consumer := s.consumer(t, s.q, "w")
	for range 20 {
		id := s.submit(t)
		if _, err := next(t, consumer).Fail(t.Context(), "no"); err != nil {
			t.Fatal(err)
		}
		g, ctx := errgroup.WithContext(t.Context())
		var set *job.Job
		g.Go(func() (err error) { set, err = s.q.SetTTL(ctx, s.e, id, time.Hour); return err })
		g.Go(func() error { _, err := s.q.Retry(ctx, s.e, id, ""); return err })
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		got := s.want(t, id, job.InQueue)
		if want := got.Submitted.Add(time.Hour); !got.Expires.Equal(want) || set == nil {
			t.Fatalf("got the ttl end %s, want %s", got.Expires, want)
		}
		if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
			t.Fatal(err)
		}
	}
}

// A read that an outage held up may be answered after the ttl: what was decided before it
// is not written then.
func TestNoOutcomeIsWrittenAfterTheTTL(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	r, err := s.q.read.record(t.Context(), record.LocationOf(s.e), id, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.Expires = s.q.Now()
	if _, err := s.q.timeOut(t.Context(), record.LocationOf(s.e), r); !errors.Is(err, bus.ErrConflict) {
		t.Errorf("got %v, want bus.ErrConflict", err)
	}
	s.want(t, l.Job.ID, job.InProgress)
}

// A large output takes a while to be stored, and a caller may make the ttl longer meanwhile.
func TestALargeOutputIsKeptForATTLThatIsSetWhileItIsStored(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = time.Hour })
	const longer = 5 * time.Hour
	var once sync.Once
	slow := s.queue(t, Config{Point: func(p Point) {
		if p == AfterPayload {
			once.Do(func() {
				if _, err := s.q.SetTTL(t.Context(), s.e, id, longer); err != nil {
					t.Error(err)
				}
			})
		}
	}})
	l := next(t, s.consumer(t, slow, "w"))
	if _, err := l.Complete(t.Context(), largeJSON()); err != nil {
		t.Fatal(err)
	}
	if got := s.want(t, id, job.Completed); len(got.Output) != len(largeJSON()) {
		t.Errorf("got an output of %d bytes, want %d", len(got.Output), len(largeJSON()))
	}
	part, err := s.q.bus.LeaderLast(t.Context(), streams.Payloads(0), l.rec.OutputRef.Subject)
	if err != nil {
		t.Fatal(err)
	}
	if ttl, err := time.ParseDuration(part.Header.Get(jetstream.MsgTTLHeader)); err != nil || ttl < longer {
		t.Errorf("got a ttl of %v, %v, want %v or more", ttl, err, longer)
	}
}
