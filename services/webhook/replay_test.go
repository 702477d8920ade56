package webhook

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flightline/shared/deliveries"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestReplay(t *testing.T) {
	t.Parallel()
	s := newEnv(t, time.Second)
	s.serve(lenient())
	var broken atomic.Bool
	broken.Store(true)
	r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	ids := []job.ID{s.complete(r.url), s.complete(r.url)}
	for _, id := range ids {
		if log := s.over(id); len(log) != 2 {
			t.Fatalf("got %d attempts, want 2", len(log))
		}
	}
	testenv.Eventually(s.t, "both are kept", func() bool { return s.left(streams.Undelivered) == 2 && s.left(streams.Webhooks) == 0 })
	broken.Store(false)
	if n, err := s.deliveries.Redrive(t.Context(), "ep", deliveries.RedriveQuery{Since: time.Now().Add(time.Hour)}); n != 0 || err != nil {
		t.Errorf("since later: got %d, %v, want none", n, err)
	}
	if n, err := s.deliveries.Redrive(t.Context(), "ep", deliveries.RedriveQuery{Job: ids[0], Reason: deliveries.ReasonGivenUp}); n != 1 || err != nil {
		t.Errorf("one job: got %d, %v, want 1", n, err)
	}
	testenv.Eventually(s.t, "its delivery", func() bool { return len(s.log(ids[0])) == 3 })
	if n, err := s.deliveries.Redrive(t.Context(), "ep", deliveries.RedriveQuery{Since: time.Now().Add(-time.Minute)}); n != 1 || err != nil {
		t.Errorf("the rest: got %d, %v, want 1", n, err)
	}
	testenv.Eventually(s.t, "its delivery", func() bool { return len(s.log(ids[1])) == 3 })
	if err := s.deliveries.Reenqueue(t.Context(), s.endpoint, ids[0]); err != nil { // it was delivered
		t.Fatal(err)
	}
	testenv.Eventually(s.t, "another delivery", func() bool { return len(s.log(ids[0])) == 4 })
	seen := map[string]bool{}
	for _, c := range r.calls() {
		if c.job() == ids[0] {
			seen[c.header.Get(standardwebhooks.HeaderWebhookID)] = true
		}
	}
	if len(seen) != 1 {
		t.Errorf("got webhook-ids %v, want one for all", seen)
	}
	for _, d := range s.log(ids[0])[2:] {
		if d.Try != 1 || d.Outcome != deliveries.Delivered {
			t.Errorf("a replay: got %+v, want a first attempt that succeeds", d)
		}
	}
	testenv.Eventually(s.t, "nothing is left", func() bool { return s.left(streams.Undelivered) == 0 && s.left(streams.Webhooks) == 0 })
}

func TestADestinationThatKeepsFailingIsPaused(t *testing.T) {
	t.Parallel()
	s := newEnv(t, time.Second)
	cfg := lenient()
	cfg.FailurePolicy.Webhooks = 3
	s.serve(cfg)
	r, other := receive(t, answerWith(503)), receive(t, answerWith(200))
	for range 3 {
		s.over(s.complete(r.url))
	}
	origin := targetOf(r.url).origin
	testenv.Eventually(s.t, "the pause", func() bool {
		d, err := s.registry.Destinations.Find(t.Context(), "ep", origin)
		return err == nil && d.Paused && strings.Contains(d.Reason, "3 webhooks in a row were given up, the last one: status 503")
	})
	calls := len(r.calls())
	parked, passed := s.complete(r.url), s.complete(other.url)
	s.over(passed)
	testenv.Eventually(s.t, "it is kept", func() bool { return s.left(streams.Undelivered) == 4 })
	if got := s.log(parked); len(got) != 0 || len(r.calls()) != calls {
		t.Errorf("got attempts %+v and %d calls more, want none while it is paused", got, len(r.calls())-calls)
	}
	if err := s.registry.Destinations.Resume(t.Context(), "ep", origin); err != nil {
		t.Fatal(err)
	}
	n, err := s.deliveries.Redrive(t.Context(), "ep", deliveries.RedriveQuery{Reason: deliveries.ReasonPaused, Destination: origin})
	if n != 1 || err != nil {
		t.Errorf("got %d, %v, want the one that was parked", n, err)
	}
	s.over(parked)
	testenv.Eventually(s.t, "one failure, counted from the start", func() bool {
		list, err := s.registry.Destinations.List(t.Context(), "ep")
		return err == nil && len(list) == 1 && list[0].Failures == 1 && !list[0].Paused
	})
	if slices.ContainsFunc(other.calls(), func(c call) bool { return c.job() != passed }) {
		t.Errorf("another destination was called for others")
	}
}

// Else a power loss could resume a destination and leave its webhooks to wait for that.
func TestAWebhookIsParkedOnceThePauseIsOnTheDisk(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var broken atomic.Bool
	broken.Store(true)
	var waits atomic.Int64
	s.bus.ServeBarrier(t, streams.DurablePrefix, func(_ context.Context, stream string) error {
		if stream == streams.Bucket(streams.BucketDestinations) && broken.Load() {
			waits.Add(1)
			return errors.New("broken disk")
		}
		return nil
	})
	s.bus.WaitForBarrier(t, streams.DurablePrefix)
	r := receive(t, answerWith(200))
	if _, err := s.registry.Destinations.Pause(t.Context(), "ep", targetOf(r.url).origin, "moves", time.Now()); err != nil {
		t.Fatal(err)
	}
	s.complete(r.url)
	s.serve(lenient())
	testenv.Eventually(t, "the pause was waited for twice, or the task has left the queue", func() bool { return waits.Load() > 1 || s.left(streams.Webhooks) == 0 })
	if got := s.left(streams.Webhooks); got != 1 {
		t.Errorf("got %d tasks in the queue while nothing gets to the disk, want one", got)
	}
	broken.Store(false)
	testenv.Eventually(t, "it is kept", func() bool { return s.left(streams.Webhooks) == 0 && s.left(streams.Undelivered) == 1 })
}

// A process may die, or its server not answer, between the log's last line of a
// task and the task's removal. A pause that begins meanwhile changes no outcome.
func TestAPauseChangesNothingThatTheLogHasEnded(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[deliveries.Outcome]uint64{deliveries.GivenUp: 1, deliveries.Delivered: 0} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, time.Second)
			r := receive(t, answerWith(200))
			id := s.complete(r.url)
			consumer, err := s.js.Consumer(t.Context(), streams.Webhooks, streams.WebhookConsumer)
			if err != nil {
				t.Fatal(err)
			}
			m, err := consumer.Next() // by the process that dies
			if err == nil {
				err = m.Nak()
			}
			if err != nil {
				t.Fatal(err)
			}
			d := deliveries.Attempt{Endpoint: "ep", Job: id, Attempt: 1, Try: 1, Outcome: outcome, Started: time.Now()}
			if err := s.deliveries.Append(t.Context(), d, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := s.registry.Destinations.Pause(t.Context(), "ep", targetOf(r.url).origin, "moves", time.Now()); err != nil {
				t.Fatal(err)
			}
			s.serve(lenient())
			testenv.Eventually(t, "it has left the queue", func() bool { return s.left(streams.Webhooks) == 0 && s.left(streams.Undelivered) == want })
			n, err := s.deliveries.Redrive(t.Context(), "ep", deliveries.RedriveQuery{Reason: deliveries.ReasonPaused})
			if n != 0 || err != nil {
				t.Errorf("got %d, %v, want none that the pause has kept", n, err)
			}
		})
	}
}

// A job of an endpoint that was deleted says nothing to receivers of the next
// one of that id, whatever way its webhook was kept on; the next one's do.
func TestAnEarlierEndpointsWebhooksAreDropped(t *testing.T) {
	t.Parallel()
	s := newEnv(t, time.Second)
	r := receive(t, answerWith(200))
	old := s.complete(r.url)
	ended, err := s.queue.Status(t.Context(), s.endpoint, old)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.registry.Endpoints.Delete(t.Context(), s.endpoint); err != nil {
		t.Fatal(err)
	}
	before := s.endpoint.WebhookSecret
	testenv.Eventually(s.t, "the clock of the next one's creation is past the job's end", func() bool { return time.Since(ended.Finished) > 2*time.Millisecond })
	s.create(endpoint.Endpoint{WebhookRetries: []time.Duration{time.Second}})
	s.serve(lenient())
	id := s.complete(r.url)
	s.over(id)
	testenv.Eventually(s.t, "both are done", func() bool { return s.left(streams.Webhooks) == 0 })
	calls := r.calls()
	if len(calls) != 1 || calls[0].job() != id || verify(calls[0], s.endpoint.WebhookSecret) != nil || before == s.endpoint.WebhookSecret {
		t.Errorf("got %d calls, the first of job %s; want one, of %s, with its endpoint's secret", len(calls), calls[0].job(), id)
	}
	if log := s.log(old); len(log) != 0 {
		t.Errorf("got %+v, want no attempt for job %s", log, old)
	}
}
