package deliveries

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
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
)

// webhook tasks reads webhook tasks until the test ends.
func (s *env) tasks(t *testing.T) <-chan *Task {
	t.Helper()
	got := make(chan *Task, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.d.Consume(ctx, func(c *Task) { got <- c }) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return got
}

func nextTask(t *testing.T, from <-chan *Task) *Task {
	t.Helper()
	select {
	case c := <-from:
		return c
	case <-time.After(soon):
		t.Fatal("no webhook task came")
		return nil
	}
}

// ended cancels a job with a webhook and announces that.
func (s *env) ended(t *testing.T, input string) job.ID {
	t.Helper()
	id := s.submit(t, func(r *job.Request) {
		r.Webhook, r.Input, r.S3Config = "https://example.test/", json.RawMessage(input), json.RawMessage(`{"accessSecret":"hush"}`)
	})
	j, err := s.q.Cancel(t.Context(), s.e, id)
	if err == nil {
		err = s.d.Enqueue(t.Context(), queue.RecordChange{Job: *j})
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (s *env) eventuallyLeft(t *testing.T, stream string, want uint64) {
	t.Helper()
	testenv.EventuallyNone(t, func() string {
		if got := s.Messages(t, stream); got != want {
			return fmt.Sprintf("%s: got %d messages, want %d", stream, got, want)
		}
		return ""
	})
}

func TestATaskIsWholeAndGoesWhenDone(t *testing.T) {
	for name, input := range map[string]string{"small": `{"x":1}`, "large": `{"x":"` + strings.Repeat("x", 300<<10) + `"}`} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			id := s.ended(t, input)
			s.eventuallyLeft(t, streams.Webhooks, 1)
			before := s.Messages(t, streams.Payloads(0))
			c := nextTask(t, s.tasks(t))
			if c.Job.ID != id || c.Job.Endpoint != "ep" || c.Job.Status != job.Cancelled || c.Input != nil || c.Replay != "" {
				t.Errorf("got %+v, want the cancelled job without its input", c.Job)
			}
			if err := c.Load(t.Context()); err != nil || string(c.Input) != input {
				t.Errorf("got %d bytes, %v, want %d", len(c.Input), err, len(input))
			}
			c.Nak(0)
			c.Ack(t.Context()) // too late: it comes again
			s.eventuallyLeft(t, streams.Webhooks, 1)
			_ = before
		})
	}
}

func TestAPayloadThatIsGoneIsToldApart(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.ended(t, `{"x":"`+strings.Repeat("x", 300<<10)+`"}`)
	c := nextTask(t, s.tasks(t))
	if err := s.q.Bus().Purge(t.Context(), streams.Payloads(0), "kept.>"); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(t.Context()); !errors.Is(err, record.ErrPayloadGone) {
		t.Errorf("got %v, want %v", err, record.ErrPayloadGone)
	}
	c.Ack(t.Context())
	s.eventuallyLeft(t, streams.Webhooks, 0)
	if err := c.Load(t.Context()); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("got %v, want %v once it was delivered", err, job.ErrNotFound)
	}
}

// lingering is a message whose acknowledgement has not arrived.
type lingering struct{ jetstream.Msg }

func (lingering) Ack() error { return nil }

func TestAReplayWaitsUntilTheKeptOneHasLeftTheQueue(t *testing.T) {
	t.Parallel()
	for name, replayed := range map[string]bool{"the first time": false, "as a replay": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := s.ended(t, `{"n":0}`)
			from := s.tasks(t)
			c := nextTask(t, from)
			if replayed {
				if err := c.DeadLetter(t.Context(), ReasonPaused, "https://a:443"); err != nil {
					t.Fatal(err)
				}
				if err := replayKept(t.Context(), s, id); err != nil {
					t.Fatal(err)
				}
				c = nextTask(t, from)
			}
			leaves := c.msg
			c.msg = lingering{leaves}
			if err := c.DeadLetter(t.Context(), ReasonGivenUp, "https://a:443"); err != nil {
				t.Fatal(err)
			}
			if n, err := s.d.Redrive(t.Context(), "ep", RedriveQuery{}); n != 0 || err != nil {
				t.Errorf("while it is there: got %d, %v, want none", n, err)
			}
			s.eventuallyLeft(t, streams.Undelivered, 1) // else it would be lost with the other
			time.AfterFunc(100*time.Millisecond, func() { _ = leaves.Ack() })
			if n, err := s.d.Redrive(t.Context(), "ep", RedriveQuery{}); n != 1 || err != nil {
				t.Errorf("when it leaves: got %d, %v, want 1", n, err)
			}
			s.eventuallyLeft(t, streams.Undelivered, 0)
			if again := nextTask(t, from); again.Job.ID != id {
				t.Errorf("got the webhook task of %s, want that of %s", again.Job.ID, id)
			}
		})
	}
}

func TestKeptTasksAreReplayed(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	ids := []job.ID{s.ended(t, `{"n":0}`), s.ended(t, `{"n":1}`), s.ended(t, `{"n":2}`)}
	from := s.tasks(t)
	for range ids {
		c := nextTask(t, from)
		why, where := ReasonGivenUp, "https://a:443"
		if c.Job.ID == ids[2] {
			why, where = ReasonPaused, "https://b:443"
		}
		for range 2 { // a crash before the acknowledgement repeats it
			if err := c.DeadLetter(t.Context(), why, where); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.eventuallyLeft(t, streams.Webhooks, 0)
	s.eventuallyLeft(t, streams.Undelivered, 3)
	steps := []struct {
		which RedriveQuery
		ids   []job.ID
	}{
		{RedriveQuery{Since: time.Now().Add(time.Hour)}, nil},
		{RedriveQuery{Reason: ReasonGivenUp, Destination: "https://b:443"}, nil},
		{RedriveQuery{Job: ids[1]}, ids[1:2]},
		{RedriveQuery{Reason: ReasonPaused, Destination: "https://b:443"}, ids[2:]},
		{RedriveQuery{Since: time.Now().Add(-time.Hour)}, ids[:1]},
		{RedriveQuery{}, nil},
	}
	for i, step := range steps {
		if n, err := s.d.Redrive(t.Context(), "ep", step.which); n != len(step.ids) || err != nil {
			t.Fatalf("step %d: got %d, %v, want %d", i, n, err, len(step.ids))
		}
		for _, id := range step.ids {
			c := nextTask(t, from)
			if err := c.Load(t.Context()); err != nil || c.Job.ID != id || len(c.Input) == 0 {
				t.Errorf("step %d: got %s with %d bytes, %v, want %s", i, c.Job.ID, len(c.Input), err, id)
			}
			if (c.Replay == "") != (id == ids[2]) {
				t.Errorf("step %d: got replay %q: a paused task goes on where it was, others begin with the first try", i, c.Replay)
			}
			c.Ack(t.Context())
		}
	}
}

// A receiver that refuses at once must not keep a redrive going without end.
func TestARedriveLeavesWhatFailsMeanwhile(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	const n = 3
	for range n {
		s.ended(t, `{}`)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	refused := func(c *Task) { // by its receiver, each time
		if err := c.DeadLetter(ctx, ReasonPaused, "https://a:443"); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	reading.Go(func() { _ = s.d.Consume(ctx, refused) })
	t.Cleanup(func() { cancel(); reading.Wait() })
	s.eventuallyLeft(t, streams.Webhooks, 0)
	within, stop := context.WithTimeout(ctx, soon)
	defer stop()
	if got, err := s.d.Redrive(within, "ep", RedriveQuery{}); got != n || err != nil {
		t.Errorf("got %d, %v, want %d", got, err, n)
	}
	s.eventuallyLeft(t, streams.Undelivered, n)
}

func TestNothingSecretIsKept(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.ended(t, `{}`)
	if err := nextTask(t, s.tasks(t)).DeadLetter(t.Context(), ReasonGivenUp, "https://a:443"); err != nil {
		t.Fatal(err)
	}
	m, err := s.q.Bus().LeaderLast(t.Context(), streams.Undelivered, streams.UndeliveredFilter("", ""))
	if err != nil || strings.Contains(string(m.Data)+fmt.Sprint(m.Header), "hush") {
		t.Errorf("got %v, or the s3Config in it", err)
	}
	if ttl := m.Header.Get("Nats-TTL"); ttl == "" {
		t.Errorf("got no ttl, want the rest of 7 days")
	}
}

func TestAJobIsAnnouncedAgainWhileItIsKept(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id, from := s.ended(t, `{}`), s.tasks(t)
	nextTask(t, from).Ack(t.Context())
	s.eventuallyLeft(t, streams.Webhooks, 0)
	if err := s.d.Reenqueue(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	if c := nextTask(t, from); c.Job.ID != id || c.Replay == "" {
		t.Errorf("got %s, replay %q, want %s as a replay", c.Job.ID, c.Replay, id)
	}
	silent := s.submit(t)
	waiting := s.submit(t, func(r *job.Request) { r.Webhook = "https://example.test/" })
	if _, err := s.q.Cancel(t.Context(), s.e, silent); err != nil {
		t.Fatal(err)
	}
	for what, id := range map[string]job.ID{"no webhook": silent, "not ended": waiting, "unknown": queue.NewID(job.Async)} {
		if err := s.d.Reenqueue(t.Context(), s.e, id); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("%s: got %v, want %v", what, err, job.ErrNotFound)
		}
	}
}

func TestTheLogTakesEachAttemptOnce(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.ended(t, `{}`)
	c := nextTask(t, s.tasks(t))
	last, err := s.d.Last(t.Context(), c)
	if err != nil || last.Seq != 0 {
		t.Fatalf("got %+v, %v, want none", last, err)
	}
	d := Attempt{
		Endpoint: "ep", Job: id, Attempt: 1, Try: 1, Outcome: Failed, Status: 500, URL: "http://h:80/",
		Started: time.Now().UTC(), Took: time.Millisecond, Next: time.Now().Add(time.Second).UTC(),
	}
	if err := s.d.Append(t.Context(), d, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.d.Append(t.Context(), d, 0); !errors.Is(err, ErrLogged) {
		t.Errorf("the same again: got %v, want %v", err, ErrLogged)
	}
	last, err = s.d.Last(t.Context(), c)
	d.Seq = last.Seq
	if diff := cmp.Diff(d, last); err != nil || diff != "" {
		t.Errorf("got %v, -want +got:\n%s", err, diff)
	}
	d.Try, d.Outcome = 2, Delivered
	if err := s.d.Append(t.Context(), d, last.Seq); err != nil {
		t.Fatal(err)
	}
}

func TestPagesOfTheLogMissNothing(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	const all = 30
	for i := range all {
		d := Attempt{Endpoint: fmt.Sprintf("ep%d", i%2), Job: job.ID(fmt.Sprint("j", i)), Attempt: 1, Try: 1, Outcome: Delivered, Started: time.Now()}
		if err := s.d.Append(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for before := uint64(0); ; {
		page, next, err := s.d.List(t.Context(), "ep1", Query{Before: before, Most: 4})
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

// The barrier is found after the first webhook tasks were read, and then the
// server is restarted: what is done leaves the queue all the same.
func TestWhatIsDoneLeavesThoughTheBarrierWasFoundLate(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	from := s.tasks(t)
	s.ended(t, `{}`)
	nextTask(t, from).Ack(t.Context())
	s.eventuallyLeft(t, streams.Webhooks, 0)
	s.ServeBarrier(t, streams.DurablePrefix, func(context.Context, string) error { return nil })
	testenv.Eventually(t, "the barrier is found", func() bool { return s.q.Bus().HasBarrier() })
	server := s.q.Bus().Conn().ConnectedServerId()
	s.Stop()
	s.Start()
	testenv.Eventually(t, "the server is back", func() bool {
		_, err := s.JS.Stream(t.Context(), streams.Webhooks)
		return err == nil && s.q.Bus().Conn().IsConnected() && s.q.Bus().Conn().ConnectedServerId() != server
	})
	s.WaitForBarrier(t, streams.DurablePrefix)
	id := s.ended(t, `{}`)
	if c := nextTask(t, from); c.Job.ID != id || c.server != s.q.Bus().Conn().ConnectedServerId() {
		t.Errorf("got %s of server %s, want %s of %s", c.Job.ID, c.server, id, s.q.Bus().Conn().ConnectedServerId())
	} else {
		c.Ack(t.Context())
	}
	s.eventuallyLeft(t, streams.Webhooks, 0)
}

// The client gives up after some answers of the server: then the store asks again.
func TestTasksAreReadOnAfterARefusal(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	pulls := make(chan *nats.Msg, 100)
	testenv.Handle(t, s.NC, "$JS.API.CONSUMER.MSG.NEXT."+streams.Webhooks+".>", func(m *nats.Msg) { pulls <- m })
	from := s.tasks(t)
	pull := <-pulls
	if err := s.NC.PublishMsg(&nats.Msg{Subject: pull.Reply, Header: nats.Header{"Status": {"400"}, "Description": {"Bad Request"}}}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "another request", func() bool {
		select {
		case again := <-pulls:
			return again.Reply != pull.Reply
		default:
			return false
		}
	})
	id := s.ended(t, `{}`)
	if c := nextTask(t, from); c.Job.ID != id {
		t.Errorf("got %s, want %s", c.Job.ID, id)
	}
}

// An acknowledgement of a task of an earlier server would be that of another task.
func TestNothingIsSaidOfATaskOfAServerBefore(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.use(s.store(t, queue.Config{Durable: func(context.Context, string) error { return nil }}))
	s.ended(t, `{}`)
	c := nextTask(t, s.tasks(t))
	said := make(chan *nats.Msg, 100)
	sub, err := s.NC.ChanSubscribe("$JS.ACK."+streams.Webhooks+".>", said)
	if err == nil {
		err = s.NC.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it ends with the connection
	now := c.server
	c.server = "another"
	c.Extend()
	c.Nak(0)
	c.Nak(time.Hour)
	if err := s.q.Bus().Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if len(said) > 0 {
		t.Fatalf("got %s, want nothing", (<-said).Data)
	}
	c.server = now
	c.Extend()
	testenv.Eventually(t, "the server hears", func() bool { return len(said) == 1 })
}

func TestWhenTheQueueForgetsATask(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for ttl, want := range map[string]time.Duration{"": streams.WebhooksAge, "90s": 90 * time.Second, "never": streams.WebhooksAge} {
		if got := endOf(since, ttl); !got.Equal(since.Add(want)) {
			t.Errorf("ttl %q: got %s, want %s later", ttl, got, want)
		}
	}
}
