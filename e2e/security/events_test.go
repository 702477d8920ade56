package security

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/streams"
)

// The autoscaler reads how jobs ended, to see that they fail everywhere.
func TestTheAutoscalerReadsHowJobsEnded(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.T = t
	open := func(role streams.Role) *events.Log {
		t.Helper()
		nc := g.connect(role)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		if role == streams.RoleAdmin {
			if err := streams.Apply(t.Context(), js, streams.Config{}); err != nil {
				t.Fatal(err)
			}
		}
		l, err := events.New(nc, js, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	now := time.Now()
	if err := open(streams.RoleAdmin).Append(t.Context(), events.Event{
		Kind: events.Failed, Status: job.Failed, Endpoint: "ep", Job: "j", Attempt: 1, Run: 1, Mode: job.Async, Class: job.Normal, Worker: "w",
		At: now, Submitted: now, Queued: now, Started: now, Finished: now, Expires: now.Add(time.Hour), RetainUntil: now.Add(time.Hour), Cause: "no",
	}); err != nil {
		t.Fatal(err)
	}
	page, _, err := open(streams.RoleAutoscaler).Before(t.Context(), "ep", events.Past{Since: now.Add(-time.Hour), Most: 10})
	if err != nil || len(page) != 1 || page[0].Cause != "no" {
		t.Errorf("got %+v, %v, want the failure", page, err)
	}
}
