package client_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/client"
)

func TestWebhooksAskAsTheAPIWants(t *testing.T) {
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		answer string
		call   func(w client.Webhooks) (any, error)
		want   request
		got    string
	}{
		"deliveries": {
			`{"deliveries":[{"job":"j1","attempt":1,"try":2,"replay":false,"outcome":"failed","startedAt":"2026-11-21T12:00:00Z","durationMs":3,"url":"http://h:80/","status":500,"nextAt":"2026-11-21T12:00:10Z"}],"hasMore":true,"cursor":"7"}`,
			func(w client.Webhooks) (any, error) {
				return w.Deliveries(t.Context(), client.WebhookQuery{Job: "j1", Since: since, Failed: true, Limit: 5, Cursor: "9"})
			},
			request{Method: "GET", URI: "/v1/endpoints/ep/webhooks/deliveries?cursor=9&failed=true&job=j1&limit=5&since=2026-11-21T12%3A00%3A00Z"},
			`{"deliveries":[{"job":"j1","attempt":1,"try":2,"replay":false,"outcome":"failed","startedAt":"2026-11-21T12:00:00Z","durationMs":3,"url":"http://h:80/","status":500,"nextAt":"2026-11-21T12:00:10Z"}],"hasMore":true,"cursor":"7"}`,
		},
		"destinations": {
			`[{"destination":"http://h:80","failures":3,"paused":true,"reason":"r","since":"2026-11-21T12:00:00Z"}]`,
			func(w client.Webhooks) (any, error) { return w.Destinations(t.Context()) },
			request{Method: "GET", URI: "/v1/endpoints/ep/webhooks/destinations"},
			`[{"destination":"http://h:80","failures":3,"paused":true,"reason":"r","since":"2026-11-21T12:00:00Z"}]`,
		},
		"replay": {
			`{"replayed":1}`,
			func(w client.Webhooks) (any, error) { return w.Replay(t.Context(), "j1") },
			request{Method: "POST", URI: "/v1/endpoints/ep/webhooks/replay", Body: `{"job":"j1"}`},
			`1`,
		},
		"replay since": {
			`{"replayed":4}`,
			func(w client.Webhooks) (any, error) { return w.ReplaySince(t.Context(), since) },
			request{Method: "POST", URI: "/v1/endpoints/ep/webhooks/replay", Body: `{"since":"2026-11-21T12:00:00Z"}`},
			`4`,
		},
		"pause": {
			`{"destination":"http://h:80","failures":0,"paused":true,"reason":"r"}`,
			func(w client.Webhooks) (any, error) { return w.Pause(t.Context(), "http://h/x", "r") },
			request{Method: "POST", URI: "/v1/endpoints/ep/webhooks/pause", Body: `{"destination":"http://h/x","reason":"r"}`},
			`{"destination":"http://h:80","failures":0,"paused":true,"reason":"r"}`,
		},
		"resume": {
			`{"replayed":2}`,
			func(w client.Webhooks) (any, error) { return w.Resume(t.Context(), "http://h/x") },
			request{Method: "POST", URI: "/v1/endpoints/ep/webhooks/resume", Body: `{"destination":"http://h/x"}`},
			`2`,
		},
		"secret": {
			`{"webhookSecret":"whsec_x","overlapUntil":"2026-11-21T12:00:00Z"}`,
			func(w client.Webhooks) (any, error) { return w.RotateSecret(t.Context(), time.Minute) },
			request{Method: "POST", URI: "/v1/endpoints/ep/webhooks/secret", Body: `{"overlapMs":60000}`},
			`{"webhookSecret":"whsec_x","overlapUntil":"2026-11-21T12:00:00Z"}`,
		},
		"secret, the server's overlap": {
			`{}`,
			func(w client.Webhooks) (any, error) { return w.RotateSecret(t.Context(), -1) },
			request{Method: "POST", URI: "/v1/endpoints/ep/webhooks/secret", Body: `{}`},
			`{"webhookSecret":"","overlapUntil":"0001-01-01T00:00:00Z"}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, ok(test.answer))
			got, err := test.call(s.Webhooks("ep"))
			if err != nil {
				t.Fatal(err)
			}
			test.want.Auth = "Bearer secret"
			if test.want.Body != "" {
				test.want.ContentType = "application/json"
			}
			if diff := cmp.Diff([]request{test.want}, s.requests()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if text := compact(t, got); text != test.got {
				t.Errorf("got %s, want %s", text, test.got)
			}
		})
	}
}
