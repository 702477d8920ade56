package webhook

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/deliveries"
	"flightline/shared/endpoint"
	"flightline/shared/testenv"
	"flightline/streams"
)

// told are what instances tell the queue of what they were handed out.
func (s *env) told() <-chan *nats.Msg {
	s.t.Helper()
	told := make(chan *nats.Msg, 1000)
	sub, err := s.bus.NC.ChanSubscribe("$JS.ACK."+streams.Webhooks+".>", told)
	if err == nil {
		err = s.bus.NC.Flush()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = sub.Unsubscribe() })
	return told
}

// While an endpoint is being deleted its webhooks wait: the deletion may be
// refused yet, and then they are delivered.
func TestARefusedDeletionLosesNoWebhook(t *testing.T) {
	t.Parallel()
	s := newEnv(t, time.Second)
	r := receive(t, answerWith(200))
	told := s.told()
	if _, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), s.endpoint); err != nil {
		t.Fatal(err)
	}
	s.serve(lenient())
	id := s.complete(r.url)
	if m := <-told; !strings.HasPrefix(string(m.Data), "-NAK") {
		t.Errorf("while it is marked: got %q, want that it is put off", m.Data)
	}
	if err := s.registry.Endpoints.Unmark(t.Context(), s.endpoint); err != nil {
		t.Fatal(err)
	}
	s.over(id)
	if calls := r.calls(); len(calls) != 1 || verify(calls[0], s.endpoint.WebhookSecret) != nil {
		t.Errorf("got %d calls, want one with the endpoint's secret", len(calls))
	}
}

// A schedule may be longer than the queue keeps a task: it ends before that.
func TestAWebhookIsGivenUpBeforeTheQueueForgetsIt(t *testing.T) {
	t.Parallel()
	s := newEnv(t, 10*time.Minute)
	r := receive(t, answerWith(500))
	id := s.complete(r.url)
	subject := streams.WebhookSubject("ep", id, 1)
	webhooks, err := s.js.Stream(t.Context(), streams.Webhooks)
	if err != nil {
		t.Fatal(err)
	}
	there, err := webhooks.GetLastMsgForSubject(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	there.Header.Set(jetstream.MsgTTLHeader, "300s") // what is left of the 7 days
	there.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
	if _, err := s.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: there.Header, Data: there.Data}); err != nil {
		t.Fatal(err)
	}
	s.serve(lenient())
	if log := s.over(id); len(log) != 1 || log[0].Outcome != deliveries.GivenUp || log[0].Status != 500 {
		t.Errorf("got %+v, want it given up after the first attempt", log)
	}
	testenv.Eventually(s.t, "it is kept", func() bool { return s.left(streams.Undelivered) == 1 && s.left(streams.Webhooks) == 0 })
}

// A pause that was ended between the two looks at it keeps nothing back.
func TestAResumedDestinationGetsWhatWasAboutToBeKept(t *testing.T) {
	t.Parallel()
	s := newEnv(t, time.Second)
	r := receive(t, answerWith(200))
	origin := targetOf(r.url).origin
	service, err := New(lenient(), Deps{Queue: s.queue, Registry: s.registry})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.registry.Destinations.Pause(t.Context(), "ep", origin, "moves", time.Now()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(s.t, "memory has the pause", func() bool {
		d, err := s.registry.Destinations.Get(t.Context(), "ep", origin)
		return err == nil && d.Paused
	})
	_, other := s.process()
	if err := other.Destinations.Resume(t.Context(), "ep", origin); err != nil { // the cache has it in a moment
		t.Fatal(err)
	}
	testenv.Background(t, service.Run)
	id := s.complete(r.url)
	s.over(id)
	testenv.Eventually(s.t, "nothing is left behind", func() bool { return s.left(streams.Undelivered) == 0 && s.left(streams.Webhooks) == 0 })
}

// The pause takes failures and time; whichever comes last, it is logged, and once.
func TestAPauseIsTold(t *testing.T) {
	t.Parallel()
	s := newEnv(t, []time.Duration{}...)
	if _, err := s.registry.Endpoints.Update(t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.WebhookRetries = []time.Duration{}
		return e, nil
	}); err != nil {
		t.Fatal(err)
	}
	var log testenv.Log
	cfg := lenient()
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	cfg.FailurePolicy.Webhooks, cfg.FailurePolicy.For = 1, time.Second
	s.serve(cfg)
	r := receive(t, answerWith(503))
	s.over(s.complete(r.url))
	testenv.Eventually(s.t, "a failure", func() bool {
		d, err := s.registry.Destinations.Find(t.Context(), "ep", targetOf(r.url).origin)
		return err == nil && d.Failures == 1 && !d.Paused && time.Since(d.First) > time.Second
	})
	s.over(s.complete(r.url))
	testenv.Eventually(s.t, "the pause is logged", func() bool { return strings.Count(log.String(), "destination paused") == 1 })
	s.complete(r.url)
	testenv.Eventually(s.t, "the next one is kept", func() bool { return s.left(streams.Undelivered) == 3 })
	if n := strings.Count(log.String(), "destination paused"); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
}
