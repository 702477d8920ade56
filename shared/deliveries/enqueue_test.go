package deliveries

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
	"flightline/shared/queue"
	"flightline/shared/record"
	"flightline/streams"
)

func TestAnnounceKeepsWhatTheWebhookTells(t *testing.T) {
	small, big := json.RawMessage(`{"x":1}`), json.RawMessage(`{"x":"`+strings.Repeat("x", 300<<10)+`"}`)
	for name, payload := range map[string]json.RawMessage{"small": small, "large": big} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			id := s.submit(t, func(r *job.Request) {
				r.Webhook, r.Input, r.S3Config = "https://example.test/", payload, json.RawMessage(`{"accessSecret":"hush"}`)
			})
			s.complete(t, payload)
			for range 2 { // two recorders
				if err := s.d.Enqueue(t.Context(), s.fact(t, id)); err != nil {
					t.Fatal(err)
				}
			}
			if n := s.Messages(t, streams.Webhooks); n != 1 {
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
				if err := s.q.Bus().Purge(t.Context(), stream, filter); err != nil {
					t.Fatal(err)
				}
			}
			r := s.enqueued(t, id)
			if string(r.Input) != string(payload) || string(r.Output) != string(payload) || r.Status != job.Completed || r.Webhook == "" {
				t.Errorf("got %d and %d bytes, %+v", len(r.Input), len(r.Output), r.Job)
			}
			if r.S3Config != nil {
				t.Errorf("got the s3Config, want it to stay with the worker")
			}
		})
	}
}

func TestAnnounceLeavesOutWhoDidNotAsk(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	if err := s.d.Enqueue(t.Context(), s.fact(t, id)); err != nil {
		t.Fatal(err)
	}
	if n := s.Messages(t, streams.Webhooks); n != 0 {
		t.Errorf("got %d messages, want none", n)
	}
}

// copies are the subjects of what webhooks keep of payloads.
func (s *env) copies(t *testing.T) []string {
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
func (s *env) endedLarge(t *testing.T, parts int) queue.RecordChange {
	t.Helper()
	payload := json.RawMessage(`"` + strings.Repeat("x", parts*record.PartSize-2) + `"`)
	id := s.submit(t, func(r *job.Request) { r.Webhook, r.Input = "https://example.test/", payload })
	s.complete(t, payload)
	return s.fact(t, id)
}

// Processes that enqueue the same end at the same time leave one copy.
func TestAnEndIsCopiedOnceHoweverManyAnnounceIt(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	f := s.endedLarge(t, 1)
	var g errgroup.Group
	for range 6 {
		g.Go(func() error { return s.d.Enqueue(t.Context(), f) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := s.d.Reenqueue(t.Context(), s.e, f.Job.ID); err != nil { // one is there still to be tried
		t.Fatal(err)
	}
	if got := s.copies(t); len(got) != 2 {
		t.Errorf("got copies %q, want one of the input and one of the output", got)
	}
	r := s.enqueued(t, f.Job.ID)
	if len(r.Input) != record.PartSize || len(r.Output) != record.PartSize {
		t.Errorf("got %v, want both payloads", r)
	}
}

func TestACopyThatIsBrokenOffGoesAgain(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	f := s.endedLarge(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stored atomic.Int64
	q := s.store(t, queue.Config{Durable: func(ctx context.Context, stream string) error {
		if stream == streams.Payloads(0) && stored.Add(1) == 2 {
			cancel()
		}
		return ctx.Err()
	}})
	if err := q.Enqueue(ctx, f); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want that it was cancelled", err)
	}
	if got := s.copies(t); len(got) > 0 {
		t.Errorf("got copies %q, want none", got)
	}
	if n := s.Messages(t, streams.Webhooks); n != 0 {
		t.Errorf("got %d messages, want none", n)
	}
}

// slowPayloads is a store that needs 1 s for each part of a payload.
func (s *env) slowPayloads(t *testing.T) *Store {
	t.Helper()
	return s.store(t, queue.Config{Durable: func(ctx context.Context, stream string) error {
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
}

func TestAReplayOfALargeJobMayTakeLongerThanOneAnswer(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	f := s.endedLarge(t, 3)
	if err := s.slowPayloads(t).Reenqueue(t.Context(), s.e, f.Job.ID); err != nil {
		t.Fatalf("got %v, want six parts of 1 s each to be copied", err)
	}
}

func TestALargeCopyMayTakeLongerThanOneAnswer(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	f := s.endedLarge(t, 3)
	slow := s.slowPayloads(t)
	if err := slow.Enqueue(t.Context(), f); err != nil {
		t.Fatalf("got %v, want six parts of 1 s each to be copied", err)
	}
	if got := s.copies(t); len(got) != 2 {
		t.Errorf("got copies %q, want two", got)
	}
}

// What a power loss took of a payload must not keep all other ends waiting.
func TestAnEndWhosePayloadIsGoneIsAnnounced(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	f := s.endedLarge(t, 1)
	if err := s.q.Bus().Purge(t.Context(), streams.Payloads(0), streams.AnyPayload(0, s.e.ID, f.Job.ID)); err != nil {
		t.Fatal(err)
	}
	if err := s.d.Enqueue(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := nextTask(t, s.tasks(t)).Load(t.Context()); !errors.Is(err, record.ErrPayloadGone) {
		t.Errorf("got %v, want %v", err, record.ErrPayloadGone)
	}
}

// An end that is announced once more must not wait for an input that went when
// it was announced the first time.
func TestAnEndIsAnnouncedAgainWithoutTheInputThatWasDropped(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	big := json.RawMessage(`{"x":"` + strings.Repeat("x", 300<<10) + `"}`)
	id := s.submit(t, func(r *job.Request) { r.Input, r.Webhook = big, "https://example.test/" })
	s.complete(t, json.RawMessage(`1`))
	f := s.fact(t, id)
	if err := s.q.Changes.RemoveUnneededInput(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := s.d.Enqueue(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if n := s.Messages(t, streams.Webhooks); n != 1 {
		t.Errorf("got %d announced, want 1", n)
	}
}
