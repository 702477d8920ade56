package queue

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

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
