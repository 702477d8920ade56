package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
	"flightline/streams"
)

// lagging has the stream's replica find nothing: it lacks the newest writes.
func (s *site) lagging(t *testing.T, stream string) {
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
	sub, err := s.NC.Subscribe(streams.DirectGet(stream), func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"No Results"}}})
	})
	if err == nil {
		err = s.NC.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
}

// A service that was killed after it had logged the end of a delivery leaves the
// completion in the queue until it comes again, when the log ends it. A replay
// that is asked for meanwhile must not count on that one.
func TestAReplayTakesThePlaceOfWhatTheLogHasEnded(t *testing.T) {
	t.Parallel()
	log := func(outcome DeliveryOutcome) func(*testing.T, *site, *Completion) {
		return func(t *testing.T, s *site, c *Completion) {
			t.Helper()
			d := Delivery{Endpoint: "ep", Job: c.Job.ID, Attempt: 1, Try: 1, Replay: c.Replay, Outcome: outcome, Started: time.Now()}
			last, err := s.q.LastDelivery(t.Context(), c)
			if err == nil {
				err = s.q.LogDelivery(t.Context(), d, last.Seq)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := func(t *testing.T, s *site, c *Completion) {
		t.Helper()
		log(DeliveryGivenUp)(t, s, c)
		if _, err := c.copyAside(t.Context(), GivenUp, "https://a:443"); err != nil { // and no acknowledgement
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		end    func(*testing.T, *site, *Completion)
		replay func(context.Context, *site, job.ID) error
		taken  bool
	}{
		"delivered": {log(Delivered), announceAgain, true},
		"delivered with others": {func(t *testing.T, s *site, c *Completion) {
			t.Helper()
			s.logAll(t, success(c.Job.ID, 0), success(idOf(1), 1))
		}, announceAgain, true},
		"given up":              {log(DeliveryGivenUp), announceAgain, true},
		"given up and kept":     {kept, replayKept, true},
		"waits for its retry":   {log(DeliveryFailed), announceAgain, false},
		"waits for its attempt": {func(*testing.T, *site, *Completion) {}, announceAgain, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			id, from := s.ended(t, `{}`), s.completions(t)
			old := nextCompletion(t, from)
			test.end(t, s, old)
			if err := test.replay(t.Context(), s, id); err != nil {
				t.Fatal(err)
			}
			s.eventuallyLeft(t, streams.Undelivered, 0)
			if !test.taken {
				old.Later(0)
				if c := nextCompletion(t, from); c.Replay != old.Replay {
					t.Errorf("got replay %q, want the one that waits", c.Replay)
				}
				return
			}
			c := nextCompletion(t, from)
			if c.Job.ID != id || c.Replay == "" {
				t.Errorf("got %s, replay %q, want %s as a replay", c.Job.ID, c.Replay, id)
			}
			if err := old.Keep(t.Context(), GivenUp, "https://a:443"); err != nil || s.left(t, streams.Undelivered) != 0 {
				t.Errorf("the old one: got %v and %d kept, want it to be gone", err, s.left(t, streams.Undelivered))
			}
			if n := s.left(t, streams.Webhooks); n != 1 {
				t.Errorf("got %d in the queue, want the replay", n)
			}
			if err := replayTwice(t.Context(), s, c); err != nil {
				t.Error(err)
			}
		})
	}
}

func announceAgain(ctx context.Context, s *site, id job.ID) error {
	return s.q.AnnounceAgain(ctx, s.e, id)
}

func replayKept(ctx context.Context, s *site, id job.ID) error {
	n, err := s.q.ReplayKept(ctx, "ep", ReplayOf{Job: id})
	if err == nil && n != 1 {
		err = errors.New("not replayed")
	}
	return err
}

// replayTwice: the replay c is given up, kept, and not acknowledged either.
func replayTwice(ctx context.Context, s *site, c *Completion) error {
	last, err := s.q.LastDelivery(ctx, c)
	if err != nil {
		return err
	}
	d := Delivery{Endpoint: "ep", Job: c.Job.ID, Attempt: 1, Try: 1, Replay: c.Replay, Outcome: DeliveryGivenUp, Started: time.Now()}
	if err := s.q.LogDelivery(ctx, d, last.Seq); err != nil {
		return err
	}
	if _, err := c.copyAside(ctx, GivenUp, "https://a:443"); err != nil {
		return err
	}
	if err := replayKept(ctx, s, c.Job.ID); err != nil {
		return err
	}
	m, err := s.q.leaderLast(ctx, streams.Webhooks, "webhooks.>")
	if err == nil && m.header.Get(replayHeader) == c.Replay {
		err = errors.New("the replay that was given up is still there")
	}
	return err
}

func TestWhatIsKeptIsFoundThoughAReplicaLags(t *testing.T) {
	s := newSite(t)
	ids := map[job.ID]bool{s.ended(t, `{"n":0}`): true, s.ended(t, `{"n":1}`): true}
	from := s.completions(t)
	for range ids {
		if err := nextCompletion(t, from).Keep(t.Context(), DestinationPaused, "https://a:443"); err != nil {
			t.Fatal(err)
		}
	}
	s.lagging(t, streams.Undelivered)
	which := ReplayOf{Since: time.Now().Add(-time.Hour), Reason: DestinationPaused, Destination: "https://a:443"}
	if n, err := s.q.ReplayKept(t.Context(), "ep", which); n != len(ids) || err != nil {
		t.Fatalf("got %d, %v, want %d", n, err, len(ids))
	}
	for range len(ids) { // of which one goes each time
		delete(ids, nextCompletion(t, from).Job.ID)
	}
	if len(ids) > 0 {
		t.Errorf("%v did not come back", ids)
	}
}

// Whether a destination is still paused is asked while the completion is in
// both places: so whoever resumes it finds it in one of them.
func TestACompletionLeavesTheQueueOnlyWhileTheReasonHolds(t *testing.T) {
	tests := map[string]struct {
		holds        bool
		err          error
		queued, kept uint64
	}{
		"it holds":     {true, nil, 0, 1},
		"it is over":   {false, nil, 1, 0},
		"nobody knows": {true, ErrUnavailable, 1, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.ended(t, `{}`)
			c := nextCompletion(t, s.completions(t))
			kept, err := c.KeepIf(t.Context(), DestinationPaused, "https://a:443", func(context.Context) (bool, error) {
				if in, out := s.left(t, streams.Undelivered), s.left(t, streams.Webhooks); in != 1 || out != 1 { //nolint:contextcheck // the test's own
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
