package queue

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
	"flightline/streams"
)

func TestRunsOfWhatIsDone(t *testing.T) {
	now := time.Now()
	done := func(all ...uint64) (held []swept) {
		for _, seq := range all {
			held = append(held, swept{seq: seq, at: now.Add(-time.Duration(seq) * time.Second)})
		}
		return held
	}
	tests := map[string]struct {
		held   []swept
		first  uint64
		n      int
		waited time.Duration
	}{
		"nothing":                 {nil, 1, 0, 0},
		"all":                     {done(1, 2, 3), 1, 3, 3 * time.Second},
		"an older one is not":     {done(2, 3), 1, 0, 0},
		"one between them is not": {done(5, 6, 8), 5, 2, 6 * time.Second},
	}
	for name, test := range tests {
		if n, waited := runFrom(test.held, test.first, now); n != test.n || waited != test.waited {
			t.Errorf("%s: got %d, %s, want %d, %s", name, n, waited, test.n, test.waited)
		}
	}
	if got := after(done(1, 2, 5, 6), 2); len(got) != 2 || got[0].seq != 5 {
		t.Errorf("after 2: got %v, want 5 and 6", got)
	}
}

// many are so many copies of one completion.
func (s *site) many(t *testing.T, n int) {
	t.Helper()
	heard, err := s.q.nc.SubscribeSync("webhooks.>")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(t, `{}`)
	m, err := heard.NextMsg(soon)
	if err != nil {
		t.Fatal(err)
	}
	header := nats.Header{}
	for key, values := range m.Header {
		if strings.HasPrefix(key, "Flightline-") {
			header[key] = values
		}
	}
	_ = heard.Unsubscribe()
	for range n - 1 {
		copied := &nats.Msg{Subject: streams.WebhookSubject("ep", NewID(job.Async), 1), Header: maps.Clone(header), Data: m.Data}
		if _, err := s.q.store(t.Context(), streams.Webhooks, copied); err != nil {
			t.Fatal(err)
		}
	}
}

// All are done but one in the middle: that one stays, and comes again.
func TestWhatIsDoneGoesTogether(t *testing.T) {
	const all = 3 * sweepLeast
	for name, open := range map[string]int{"all are done": -1, "one is not": all / 2, "the oldest is not": 0} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.many(t, all)
			var acks atomic.Int64
			sub, err := s.q.nc.Subscribe("$JS.ACK."+streams.Webhooks+".>", func(*nats.Msg) { acks.Add(1) })
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Unsubscribe() //nolint:errcheck // it ends with the connection
			got := make([]*Completion, 0, all)
			from := s.completions(t)
			for range all {
				got = append(got, nextCompletion(t, from))
			}
			want := uint64(0)
			for i, c := range got {
				if i == open {
					want = 1
					continue
				}
				c.Done(t.Context())
			}
			s.eventuallyLeft(t, streams.Webhooks, want)
			if open >= 0 {
				got[open].Later(0)
				if c := nextCompletion(t, from); c.Job.ID != got[open].Job.ID {
					t.Errorf("got %s again, want %s", c.Job.ID, got[open].Job.ID)
				}
			}
			if n := acks.Load(); open < 0 && n >= all/2 {
				t.Errorf("got %d acknowledgements for %d, want a purge", n, all)
			}
		})
	}
}

// A server that is alone hands out what is not on the disk yet. After a power
// loss it gives the numbers to others: what was done before must take none of
// them with it, nor be taken for one of them.
func TestWhatIsDoneTakesNoneOfTheSameNumber(t *testing.T) {
	const all = 2 * sweepLeast
	s := newSite(t)
	durable := func(context.Context, string) error { return nil } // a barrier: the server does not wait for the disk
	s.q = s.queue(t, Config{Durable: durable})
	s.many(t, all)
	from := s.completions(t)
	before := make([]*Completion, 0, all)
	for range all {
		before = append(before, nextCompletion(t, from))
	}
	before[0].Done(t.Context())
	s.Stop()
	before[1].Done(t.Context())
	s.Start()
	eventually(t, "the server is back", func() bool {
		return s.q.nc.IsConnected() && s.JS.DeleteStream(t.Context(), streams.Webhooks) == nil
	})
	if err := streams.Apply(t.Context(), s.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	s.many(t, all)
	after := map[job.ID]*Completion{}
	for range all {
		c := nextCompletion(t, from)
		after[c.Job.ID] = c
	}
	before[2].whole, before[3].whole = false, false
	if err := before[2].Load(t.Context()); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("load: got %+v, %v, want %v", before[2].Job, err, job.ErrNotFound)
	}
	if err := before[3].Keep(t.Context(), GivenUp, "https://a:443"); err != nil || s.left(t, streams.Undelivered) != 0 {
		t.Errorf("keep: got %v and %d kept, want nothing", err, s.left(t, streams.Undelivered))
	}
	for _, c := range before {
		c.Done(t.Context())
	}
	<-time.After(sweepHold + 4*sweepEvery) // within which all would be gone
	if left := s.left(t, streams.Webhooks); left != all {
		t.Fatalf("got %d left, want all %d that came since", left, all)
	}
	for _, c := range after {
		c.Done(t.Context())
	}
	s.eventuallyLeft(t, streams.Webhooks, 0)
}
