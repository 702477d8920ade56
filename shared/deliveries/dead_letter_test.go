package deliveries

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// lagging has the stream's replica find nothing: it lacks the newest writes.
func (s *env) lagging(t *testing.T, stream string) {
	t.Helper()
	of, err := s.JS.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := of.CachedInfo().Config
	cfg.AllowDirect = false
	if _, err := s.JS.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	testenv.Handle(t, s.NC, bus.DirectGet(stream), func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"No Results"}}})
	})
}

// A service that was killed after it had logged the end of a delivery leaves the
// webhook task in the queue until it comes again, when the log ends it. A replay
// that is asked for meanwhile must not count on that one.
func TestAReplayTakesThePlaceOfWhatTheLogHasEnded(t *testing.T) {
	t.Parallel()
	log := func(outcome Outcome) func(*testing.T, *env, *Task) {
		return func(t *testing.T, s *env, c *Task) {
			t.Helper()
			d := Attempt{Endpoint: "ep", Job: c.Job.ID, Attempt: 1, Try: 1, Replay: c.Replay, Outcome: outcome, Started: time.Now()}
			last, err := s.d.Last(t.Context(), c)
			if err == nil {
				err = s.d.Append(t.Context(), d, last.Seq)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := func(t *testing.T, s *env, c *Task) {
		t.Helper()
		log(GivenUp)(t, s, c)
		if _, err := c.copyToDeadLetters(t.Context(), ReasonGivenUp, "https://a:443"); err != nil { // and no acknowledgement
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		end    func(*testing.T, *env, *Task)
		replay func(context.Context, *env, job.ID) error
		taken  bool
	}{
		"delivered":             {log(Delivered), announceAgain, true},
		"given up":              {log(GivenUp), announceAgain, true},
		"given up and kept":     {kept, replayKept, true},
		"waits for its retry":   {log(Failed), announceAgain, false},
		"waits for its attempt": {func(*testing.T, *env, *Task) {}, announceAgain, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id, from := s.ended(t, `{}`), s.tasks(t)
			old := nextTask(t, from)
			test.end(t, s, old)
			if err := test.replay(t.Context(), s, id); err != nil {
				t.Fatal(err)
			}
			s.eventuallyLeft(t, streams.Undelivered, 0)
			if !test.taken {
				old.Nak(0)
				if c := nextTask(t, from); c.Replay != old.Replay {
					t.Errorf("got replay %q, want the waiting task's", c.Replay)
				}
				return
			}
			c := nextTask(t, from)
			if c.Job.ID != id || c.Replay == "" {
				t.Errorf("got %s, replay %q, want %s as a replay", c.Job.ID, c.Replay, id)
			}
			if err := old.DeadLetter(t.Context(), ReasonGivenUp, "https://a:443"); err != nil || s.Messages(t, streams.Undelivered) != 0 {
				t.Errorf("the old one: got %v and %d kept, want it to be gone", err, s.Messages(t, streams.Undelivered))
			}
			if n := s.Messages(t, streams.Webhooks); n != 1 {
				t.Errorf("got %d in the queue, want the replay", n)
			}
			if err := replayTwice(t.Context(), s, c); err != nil {
				t.Error(err)
			}
		})
	}
}

// A dead letter that cannot be read stays, and holds up none behind it.
func TestADamagedDeadLetterHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	if _, err := s.JS.Publish(t.Context(), streams.UndeliveredSubject("ep", "damaged", 1), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	id, from := s.ended(t, `{}`), s.tasks(t)
	if err := nextTask(t, from).DeadLetter(t.Context(), ReasonGivenUp, "https://a:443"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.d.Redrive(t.Context(), "ep", RedriveQuery{}); n != 1 || err != nil {
		t.Fatalf("got %d replayed, %v, want the one that can be read", n, err)
	}
	if got := nextTask(t, from).Job.ID; got != id {
		t.Errorf("got the task of %s, want that of %s", got, id)
	}
	s.eventuallyLeft(t, streams.Undelivered, 1)
}

func announceAgain(ctx context.Context, s *env, id job.ID) error {
	return s.d.Reenqueue(ctx, s.e, id)
}

func replayKept(ctx context.Context, s *env, id job.ID) error {
	n, err := s.d.Redrive(ctx, "ep", RedriveQuery{Job: id})
	if err == nil && n != 1 {
		err = errors.New("not replayed")
	}
	return err
}

// replayTwice: the replay c is given up, kept, and not acknowledged either.
func replayTwice(ctx context.Context, s *env, c *Task) error {
	last, err := s.d.Last(ctx, c)
	if err != nil {
		return err
	}
	d := Attempt{Endpoint: "ep", Job: c.Job.ID, Attempt: 1, Try: 1, Replay: c.Replay, Outcome: GivenUp, Started: time.Now()}
	if err := s.d.Append(ctx, d, last.Seq); err != nil {
		return err
	}
	if _, err := c.copyToDeadLetters(ctx, ReasonGivenUp, "https://a:443"); err != nil {
		return err
	}
	if err := replayKept(ctx, s, c.Job.ID); err != nil {
		return err
	}
	m, err := s.q.Bus().LeaderLast(ctx, streams.Webhooks, "webhooks.>")
	if err == nil && m.Header.Get(replayHeader) == c.Replay {
		err = errors.New("the replay that was given up is still there")
	}
	return err
}

func TestWhatIsKeptIsFoundThoughAReplicaLags(t *testing.T) {
	t.Parallel()
	s := newClusterEnv(t)
	ids := map[job.ID]bool{s.ended(t, `{"n":0}`): true, s.ended(t, `{"n":1}`): true}
	from := s.tasks(t)
	for range ids {
		if err := nextTask(t, from).DeadLetter(t.Context(), ReasonPaused, "https://a:443"); err != nil {
			t.Fatal(err)
		}
	}
	s.lagging(t, streams.Undelivered)
	which := RedriveQuery{Since: time.Now().Add(-time.Hour), Reason: ReasonPaused, Destination: "https://a:443"}
	if n, err := s.d.Redrive(t.Context(), "ep", which); n != len(ids) || err != nil {
		t.Fatalf("got %d, %v, want %d", n, err, len(ids))
	}
	for range len(ids) { // of which one goes each time
		delete(ids, nextTask(t, from).Job.ID)
	}
	if len(ids) > 0 {
		t.Errorf("%v did not come back", ids)
	}
}

// Whether a destination is still paused is asked while the webhook task is in
// both places: so a resume finds it in one of them.
func TestATaskLeavesTheQueueOnlyWhileTheReasonHolds(t *testing.T) {
	tests := map[string]struct {
		holds        bool
		err          error
		queued, kept uint64
	}{
		"it holds":     {true, nil, 0, 1},
		"it is over":   {false, nil, 1, 0},
		"nobody knows": {true, bus.ErrUnavailable, 1, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			s.ended(t, `{}`)
			c := nextTask(t, s.tasks(t))
			kept, err := c.DeadLetterIf(t.Context(), ReasonPaused, "https://a:443", func(context.Context) (bool, error) {
				if in, out := s.Messages(t, streams.Undelivered), s.Messages(t, streams.Webhooks); in != 1 || out != 1 { //nolint:contextcheck // the test's own
					t.Errorf("asked with %d kept and %d queued, want both", in, out)
				}
				return test.holds, test.err
			})
			if kept != (test.kept == 1) || !errors.Is(err, test.err) {
				t.Errorf("got %v, %v, want kept %d, %v", kept, err, test.kept, test.err)
			}
			s.eventuallyLeft(t, streams.Webhooks, test.queued)
			s.eventuallyLeft(t, streams.Undelivered, test.kept)
		})
	}
}
