package queue

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/job"
	"flightline/streams"
)

// announced reads what Announce wrote, with the payloads.
func (q *Queue) announced(ctx context.Context, at place, id job.ID, attempt int) (*record, error) {
	r, err := q.readLast(ctx, at, id, streams.Webhooks, streams.WebhookSubject(at.endpoint, id, attempt))
	if err != nil {
		return nil, err
	}
	if r.inRef != nil {
		if r.input, err = q.loadPayload(ctx, at, r.inRef); err != nil {
			return nil, err
		}
	}
	if r.outRef != nil {
		r.Output, err = q.loadPayload(ctx, at, r.outRef)
	}
	return r, err
}

func TestAnnounceKeepsWhatTheWebhookTells(t *testing.T) {
	small, big := json.RawMessage(`{"x":1}`), json.RawMessage(`{"x":"`+strings.Repeat("x", 300<<10)+`"}`)
	for name, payload := range map[string]json.RawMessage{"small": small, "large": big} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			id := s.submit(t, func(r *job.Request) {
				r.Webhook, r.Input, r.S3Config = "https://example.test/", payload, json.RawMessage(`{"accessSecret":"hush"}`)
			})
			if _, err := next(t, s.taker(t, s.q, "w")).Complete(t.Context(), payload); err != nil {
				t.Fatal(err)
			}
			facts := factsOf(t, s.q, 0, over(id))
			for range 2 { // two recorders
				if err := s.q.Announce(t.Context(), facts[len(facts)-1]); err != nil {
					t.Fatal(err)
				}
			}
			if n := s.left(t, streams.Webhooks); n != 1 {
				t.Errorf("got %d messages, want one", n)
			}
			want := 0
			if name == "large" {
				want = 2
			}
			if got := s.copies(t); len(got) != want {
				t.Errorf("got copies %q, want %d", got, want)
			}
			for _, stream := range []string{streams.Records(0), streams.Payloads(0)} {
				filter := map[string]string{streams.Records(0): streams.RecordFilter(0), streams.Payloads(0): streams.AnyPayload(0, s.e.ID, id)}[stream]
				if err := s.q.purgeAll(t.Context(), stream, filter); err != nil {
					t.Fatal(err)
				}
			}
			r, err := s.q.announced(t.Context(), placeOf(s.e), id, 1)
			if err != nil {
				t.Fatal(err)
			}
			if string(r.input) != string(payload) || string(r.Output) != string(payload) || r.Status != job.Completed || r.Webhook == "" {
				t.Errorf("got %d and %d bytes, %+v", len(r.input), len(r.Output), r.Job)
			}
			if r.s3 != nil {
				t.Errorf("got the s3Config, want it to stay with the worker")
			}
		})
	}
}

func TestAnnounceLeavesOutWhoDidNotAsk(t *testing.T) {
	s := newSite(t)
	id := s.submit(t)
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, s.q, 0, over(id))
	if err := s.q.Announce(t.Context(), facts[len(facts)-1]); err != nil {
		t.Fatal(err)
	}
	if n := s.left(t, streams.Webhooks); n != 0 {
		t.Errorf("got %d messages, want none", n)
	}
}

// copies are the subjects of what webhooks keep of payloads.
func (s *site) copies(t *testing.T) []string {
	t.Helper()
	stream, err := s.JS.Stream(t.Context(), streams.Payloads(0))
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(streams.KeptFilter(0, s.e.ID)))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(info.State.Subjects))
}

// endedLarge is the end of a job with an input and an output of so many parts.
func (s *site) endedLarge(t *testing.T, parts int) Fact {
	t.Helper()
	payload := json.RawMessage(`"` + strings.Repeat("x", parts*partSize-2) + `"`)
	id := s.submit(t, func(r *job.Request) { r.Webhook, r.Input = "https://example.test/", payload })
	if _, err := next(t, s.taker(t, s.q, "w")).Complete(t.Context(), payload); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, s.q, 0, over(id))
	return facts[len(facts)-1]
}

// Whoever announces what another one announces meanwhile leaves no copy behind.
func TestAnEndIsCopiedOnceHoweverManyAnnounceIt(t *testing.T) {
	s := newSite(t)
	f := s.endedLarge(t, 1)
	var g errgroup.Group
	for range 6 {
		g.Go(func() error { return s.q.Announce(t.Context(), f) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := s.q.AnnounceAgain(t.Context(), s.e, f.Job.ID); err != nil { // one is there still to be tried
		t.Fatal(err)
	}
	if got := s.copies(t); len(got) != 2 {
		t.Errorf("got copies %q, want one of the input and one of the output", got)
	}
	r, err := s.q.announced(t.Context(), placeOf(s.e), f.Job.ID, 1)
	if err != nil || len(r.input) != partSize || len(r.Output) != partSize {
		t.Errorf("got %v, %v, want both payloads", r, err)
	}
}

func TestACopyThatIsBrokenOffGoesAgain(t *testing.T) {
	s := newSite(t)
	f := s.endedLarge(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stored atomic.Int64
	q := s.queue(t, Config{Durable: func(ctx context.Context, stream string) error {
		if stream == streams.Payloads(0) && stored.Add(1) == 2 {
			cancel()
		}
		return ctx.Err()
	}})
	if err := q.Announce(ctx, f); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want that it was cancelled", err)
	}
	if got := s.copies(t); len(got) > 0 {
		t.Errorf("got copies %q, want none", got)
	}
	if n := s.left(t, streams.Webhooks); n != 0 {
		t.Errorf("got %d messages, want none", n)
	}
}

func TestALargeCopyMayTakeLongerThanOneAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	f := s.endedLarge(t, 3)
	slow := s.queue(t, Config{Durable: func(ctx context.Context, stream string) error {
		if stream != streams.Payloads(0) {
			return nil
		}
		select {
		case <-time.After(time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	if err := slow.Announce(t.Context(), f); err != nil {
		t.Fatalf("got %v, want six parts of 1 s each to be copied", err)
	}
	if got := s.copies(t); len(got) != 2 {
		t.Errorf("got copies %q, want two", got)
	}
}

// What a power loss took of a payload must not keep all other ends waiting.
func TestAnEndWhosePayloadIsGoneIsAnnounced(t *testing.T) {
	s := newSite(t)
	f := s.endedLarge(t, 1)
	if err := s.q.purgeAll(t.Context(), streams.Payloads(0), streams.AnyPayload(0, s.e.ID, f.Job.ID)); err != nil {
		t.Fatal(err)
	}
	if err := s.q.Announce(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := nextCompletion(t, s.completions(t)).Load(t.Context()); !errors.Is(err, ErrPayloadGone) {
		t.Errorf("got %v, want %v", err, ErrPayloadGone)
	}
}
