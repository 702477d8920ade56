package webhook

import (
	"net/http"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flightline/shared/endpoint"
	"flightline/shared/testenv"
	"flightline/streams"
)

// Two instances on three servers, and the server that leads the queue is lost
// in the middle: each webhook comes, with one webhook-id.
func TestALostServerLosesNoWebhook(t *testing.T) {
	t.Parallel()
	const jobs, before = 600, 100
	c := testenv.NewCluster(t)
	if err := streams.Apply(t.Context(), c.JS, streams.Config{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	s := &env{t: t, js: c.JS, connect: c.Connect, replicas: 3}
	s.create(endpoint.Endpoint{WebhookRetries: []time.Duration{time.Second}})
	s.redeliverAfter(3 * time.Second)
	r := receive(t, func(http.ResponseWriter, *http.Request) { <-time.After(10 * time.Millisecond) })
	s.completeMany(jobs, r.url)
	s.serve(lenient())
	s.serve(lenient())
	testenv.Eventually(s.t, "some came", func() bool { return len(r.calls()) >= before })
	c.StopNode(c.StreamLeader(streams.Webhooks))
	ids := map[string]bool{}
	testenv.Eventually(s.t, "all came", func() bool {
		for _, c := range r.calls() {
			ids[c.header.Get(standardwebhooks.HeaderWebhookID)] = true
		}
		return len(ids) >= jobs
	})
	testenv.Eventually(s.t, "an empty queue", func() bool {
		queue, err := c.JS.Stream(t.Context(), streams.Webhooks)
		return err == nil && queue.CachedInfo().State.Msgs == 0
	})
	for _, c := range r.calls() {
		if got, want := c.header.Get(standardwebhooks.HeaderWebhookID), "msg_"+string(c.job())+"_1"; got != want {
			t.Errorf("got webhook-id %s, want %s", got, want)
		}
	}
	if len(ids) != jobs {
		t.Errorf("got %d webhook-ids, want %d", len(ids), jobs)
	}
	t.Logf("%d calls for %d webhooks", len(r.calls()), jobs)
}
