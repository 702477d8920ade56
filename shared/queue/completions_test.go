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

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/streams"
)

// completions reads completions until the test ends.
func (s *site) completions(t *testing.T) <-chan *Completion {
	t.Helper()
	got := make(chan *Completion, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.q.Completions(ctx, func(c *Completion) { got <- c }) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return got
}

func nextCompletion(t *testing.T, from <-chan *Completion) *Completion {
	t.Helper()
	select {
	case c := <-from:
		return c
	case <-time.After(soon):
		t.Fatal("no completion came")
		return nil
	}
}

// ended cancels a job with a webhook and announces that.
func (s *site) ended(t *testing.T, input string) job.ID {
	t.Helper()
	id := s.submit(t, func(r *job.Request) {
		r.Webhook, r.Input, r.S3Config = "https://example.test/", json.RawMessage(input), json.RawMessage(`{"accessSecret":"hush"}`)
	})
	j, err := s.q.Cancel(t.Context(), s.e, id)
	if err == nil {
		err = s.q.Announce(t.Context(), Fact{Job: *j})
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (s *site) eventuallyLeft(t *testing.T, stream string, want uint64) {
	t.Helper()
	for deadline := time.Now().Add(soon); s.left(t, stream) != want; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %d messages, want %d", stream, s.left(t, stream), want)
		}
	}
}

func TestACompletionIsWholeAndGoesWhenDone(t *testing.T) {
	for name, input := range map[string]string{"small": `{"x":1}`, "large": `{"x":"` + strings.Repeat("x", 300<<10) + `"}`} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			id := s.ended(t, input)
			s.eventuallyLeft(t, streams.Webhooks, 1)
			before := s.left(t, streams.Payloads(0))
			c := nextCompletion(t, s.completions(t))
			if c.Job.ID != id || c.Job.Endpoint != "ep" || c.Job.Status != job.Cancelled || c.Input != nil || c.Replay != "" {
				t.Errorf("got %+v, want the cancelled job without its input", c.Job)
			}
			if err := c.Load(t.Context()); err != nil || string(c.Input) != input {
				t.Errorf("got %d bytes, %v, want %d", len(c.Input), err, len(input))
			}
			c.Later(0)
			c.Done(t.Context()) // too late: it comes again
			s.eventuallyLeft(t, streams.Webhooks, 1)
			_ = before
		})
	}
}

func TestAPayloadThatIsGoneIsToldApart(t *testing.T) {
	s := newSite(t)
	s.ended(t, `{"x":"`+strings.Repeat("x", 300<<10)+`"}`)
	c := nextCompletion(t, s.completions(t))
	if err := s.q.purgeAll(t.Context(), streams.Payloads(0), "kept.>"); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(t.Context()); !errors.Is(err, ErrPayloadGone) {
		t.Errorf("got %v, want %v", err, ErrPayloadGone)
	}
	c.Done(t.Context())
	s.eventuallyLeft(t, streams.Webhooks, 0)
	if err := c.Load(t.Context()); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("got %v, want %v once it was delivered", err, job.ErrNotFound)
	}
}

// lingering is a message whose acknowledgement has not arrived.
type lingering struct{ jetstream.Msg }

func (lingering) Ack() error { return nil }

func TestAReplayWaitsUntilTheKeptOneHasLeftTheQueue(t *testing.T) {
	s := newSite(t)
	id := s.ended(t, `{"n":0}`)
	from := s.completions(t)
	c := nextCompletion(t, from)
	leaves := c.msg
	c.msg = lingering{leaves}
	if err := c.Keep(t.Context(), GivenUp, "https://a:443"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.q.ReplayKept(t.Context(), "ep", ReplayOf{}); n != 0 || err != nil {
		t.Errorf("while it is there: got %d, %v, want none", n, err)
	}
	s.eventuallyLeft(t, streams.Undelivered, 1) // else it would be lost with the other
	time.AfterFunc(100*time.Millisecond, func() { _ = leaves.Ack() })
	if n, err := s.q.ReplayKept(t.Context(), "ep", ReplayOf{}); n != 1 || err != nil {
		t.Errorf("when it leaves: got %d, %v, want 1", n, err)
	}
	s.eventuallyLeft(t, streams.Undelivered, 0)
	if again := nextCompletion(t, from); again.Job.ID != id {
		t.Errorf("got the completion of %s, want that of %s", again.Job.ID, id)
	}
}

func TestKeptCompletionsAreReplayed(t *testing.T) {
	s := newSite(t)
	ids := []job.ID{s.ended(t, `{"n":0}`), s.ended(t, `{"n":1}`), s.ended(t, `{"n":2}`)}
	from := s.completions(t)
	for range ids {
		c := nextCompletion(t, from)
		why, where := GivenUp, "https://a:443"
		if c.Job.ID == ids[2] {
			why, where = DestinationPaused, "https://b:443"
		}
		for range 2 { // a crash before the acknowledgement repeats it
			if err := c.Keep(t.Context(), why, where); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.eventuallyLeft(t, streams.Webhooks, 0)
	s.eventuallyLeft(t, streams.Undelivered, 3)
	steps := []struct {
		which ReplayOf
		ids   []job.ID
	}{
		{ReplayOf{Since: time.Now().Add(time.Hour)}, nil},
		{ReplayOf{Reason: GivenUp, Destination: "https://b:443"}, nil},
		{ReplayOf{Job: ids[1]}, ids[1:2]},
		{ReplayOf{Reason: DestinationPaused, Destination: "https://b:443"}, ids[2:]},
		{ReplayOf{Since: time.Now().Add(-time.Hour)}, ids[:1]},
		{ReplayOf{}, nil},
	}
	for i, step := range steps {
		if n, err := s.q.ReplayKept(t.Context(), "ep", step.which); n != len(step.ids) || err != nil {
			t.Fatalf("step %d: got %d, %v, want %d", i, n, err, len(step.ids))
		}
		for _, id := range step.ids {
			c := nextCompletion(t, from)
			if err := c.Load(t.Context()); err != nil || c.Job.ID != id || len(c.Input) == 0 {
				t.Errorf("step %d: got %s with %d bytes, %v, want %s", i, c.Job.ID, len(c.Input), err, id)
			}
			if (c.Replay == "") != (id == ids[2]) {
				t.Errorf("step %d: got replay %q: one that was paused goes on where it was, others begin anew", i, c.Replay)
			}
			c.Done(t.Context())
		}
	}
}

func TestNothingSecretIsKept(t *testing.T) {
	s := newSite(t)
	s.ended(t, `{}`)
	if err := nextCompletion(t, s.completions(t)).Keep(t.Context(), GivenUp, "https://a:443"); err != nil {
		t.Fatal(err)
	}
	m, err := s.q.leaderLast(t.Context(), streams.Undelivered, streams.UndeliveredFilter("", ""))
	if err != nil || strings.Contains(string(m.data)+fmt.Sprint(m.header), "hush") {
		t.Errorf("got %v, or the s3Config in it", err)
	}
	if ttl := m.header.Get("Nats-TTL"); ttl == "" {
		t.Errorf("got no ttl, want the rest of 7 days")
	}
}

func TestAJobIsAnnouncedAgainWhileItIsKept(t *testing.T) {
	s := newSite(t)
	id, from := s.ended(t, `{}`), s.completions(t)
	nextCompletion(t, from).Done(t.Context())
	s.eventuallyLeft(t, streams.Webhooks, 0)
	if err := s.q.AnnounceAgain(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	if c := nextCompletion(t, from); c.Job.ID != id || c.Replay == "" {
		t.Errorf("got %s, replay %q, want %s as a replay", c.Job.ID, c.Replay, id)
	}
	silent := s.submit(t)
	waiting := s.submit(t, func(r *job.Request) { r.Webhook = "https://example.test/" })
	if _, err := s.q.Cancel(t.Context(), s.e, silent); err != nil {
		t.Fatal(err)
	}
	for what, id := range map[string]job.ID{"no webhook": silent, "not ended": waiting, "unknown": NewID(job.Async)} {
		if err := s.q.AnnounceAgain(t.Context(), s.e, id); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("%s: got %v, want %v", what, err, job.ErrNotFound)
		}
	}
}

func TestTheLogTakesEachAttemptOnce(t *testing.T) {
	s := newSite(t)
	id := s.ended(t, `{}`)
	c := nextCompletion(t, s.completions(t))
	last, err := s.q.LastDelivery(t.Context(), c)
	if err != nil || last.Seq != 0 {
		t.Fatalf("got %+v, %v, want none", last, err)
	}
	d := Delivery{
		Endpoint: "ep", Job: id, Attempt: 1, Try: 1, Outcome: DeliveryFailed, Status: 500, URL: "http://h:80/",
		Started: time.Now().UTC(), Took: time.Millisecond, Next: time.Now().Add(time.Second).UTC(),
	}
	if err := s.q.LogDelivery(t.Context(), d, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.q.LogDelivery(t.Context(), d, 0); !errors.Is(err, ErrDeliveryLogged) {
		t.Errorf("the same again: got %v, want %v", err, ErrDeliveryLogged)
	}
	last, err = s.q.LastDelivery(t.Context(), c)
	d.Seq = last.Seq
	if diff := cmp.Diff(d, last); err != nil || diff != "" {
		t.Errorf("got %v, -want +got:\n%s", err, diff)
	}
	d.Try, d.Outcome = 2, Delivered
	if err := s.q.LogDelivery(t.Context(), d, last.Seq); err != nil {
		t.Fatal(err)
	}
}

func TestPagesOfTheLogMissNothing(t *testing.T) {
	s := newSite(t)
	const all = 30
	for i := range all {
		d := Delivery{Endpoint: fmt.Sprintf("ep%d", i%2), Job: job.ID(fmt.Sprint("j", i)), Attempt: 1, Try: 1, Outcome: Delivered, Started: time.Now()}
		if err := s.q.LogDelivery(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for before := uint64(0); ; {
		page, next, err := s.q.Deliveries(t.Context(), "ep1", DeliveriesOf{Before: before, Most: 4})
		if err != nil || len(page) > 4 {
			t.Fatalf("got %d, %v", len(page), err)
		}
		for _, d := range page {
			got = append(got, string(d.Job))
		}
		if before = next; next == 0 {
			break
		}
	}
	var want []string
	for i := all - 1; i > 0; i -= 2 {
		want = append(want, fmt.Sprint("j", i))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
