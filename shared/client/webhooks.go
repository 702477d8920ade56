package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"flightline/shared/job"
)

// Webhooks looks after the webhooks of an endpoint. Each call needs a key with
// the control permission.
type Webhooks struct {
	c        *Client
	endpoint string
}

// Webhooks returns the calls that look after an endpoint's webhooks.
func (c *Client) Webhooks(endpoint string) Webhooks { return Webhooks{c, endpoint} }

// WebhookDelivery is one attempt to deliver a webhook.
type WebhookDelivery struct {
	Job job.ID `json:"job"`
	// Attempt is that of the job, Try that of the delivery, from 1.
	Attempt int `json:"attempt"`
	Try     int `json:"try"`
	// Replay: the attempt belongs to a replay.
	Replay bool `json:"replay"`
	// Outcome is "delivered", "failed" (another attempt follows) or "given_up".
	Outcome    string    `json:"outcome"`
	Started    time.Time `json:"startedAt"`
	DurationMs int64     `json:"durationMs"`
	// URL is the webhook's without user, password and query.
	URL string `json:"url"`
	// Status is that of the answer, 0 if there was none; Answer its beginning.
	Status int    `json:"status"`
	Answer string `json:"answer,omitempty"`
	Error  string `json:"error,omitempty"`
	// Next is when the next attempt is due, after one that failed.
	Next time.Time `json:"nextAt,omitzero"`
}

// WebhookDeliveries is a page of the log.
type WebhookDeliveries struct {
	Deliveries []WebhookDelivery `json:"deliveries"`
	HasMore    bool              `json:"hasMore"`
	// Cursor brings the next page, if there is one.
	Cursor string `json:"cursor,omitempty"`
}

// WebhookQuery says which attempts to list; its zero value means all.
type WebhookQuery struct {
	Job    job.ID
	Since  time.Time
	Failed bool
	// Limit is 1 to 500; 0 means 50.
	Limit int
	// Cursor is that of the page before.
	Cursor string
}

// Deliveries lists attempts of the last 7 days, the newest first. A page may
// be short, or empty, although HasMore is true.
func (w Webhooks) Deliveries(ctx context.Context, q WebhookQuery) (*WebhookDeliveries, error) {
	query := url.Values{}
	for name, text := range map[string]string{"job": string(q.Job), "cursor": q.Cursor} {
		if text != "" {
			query.Set(name, text)
		}
	}
	if !q.Since.IsZero() {
		query.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	if q.Failed {
		query.Set("failed", "true")
	}
	if q.Limit != 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	var page WebhookDeliveries
	err := w.c.do(ctx, call{method: http.MethodGet, path: w.path("deliveries"), query: query}, &page)
	return &page, err
}

// WebhookDestination is a receiver that keeps failing, or is paused.
type WebhookDestination struct {
	// Destination is its scheme, host and port.
	Destination string `json:"destination"`
	// Failures are the webhooks given up in a row.
	Failures int       `json:"failures"`
	Paused   bool      `json:"paused"`
	Reason   string    `json:"reason,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// Destinations lists receivers that keep failing or are paused.
func (w Webhooks) Destinations(ctx context.Context) ([]WebhookDestination, error) {
	var list []WebhookDestination
	err := w.c.do(ctx, call{method: http.MethodGet, path: w.path("destinations")}, &list)
	return list, err
}

// Replay sends the webhook of a job again, whatever became of it.
func (w Webhooks) Replay(ctx context.Context, id job.ID) (replayed int, err error) {
	return w.replayed(ctx, "replay", map[string]string{"job": string(id)})
}

// ReplaySince sends again what was given up since then.
func (w Webhooks) ReplaySince(ctx context.Context, since time.Time) (replayed int, err error) {
	return w.replayed(ctx, "replay", map[string]string{"since": since.UTC().Format(time.RFC3339Nano)})
}

// Pause keeps webhooks back that go to the destination, an address or the
// scheme, host and port of one.
func (w Webhooks) Pause(ctx context.Context, destination, reason string) (*WebhookDestination, error) {
	var d WebhookDestination
	body := map[string]string{"destination": destination, "reason": reason}
	err := w.c.do(ctx, call{method: http.MethodPost, path: w.path("pause"), body: body}, &d)
	return &d, err
}

// Resume lets them through again, those that were kept back first.
func (w Webhooks) Resume(ctx context.Context, destination string) (replayed int, err error) {
	return w.replayed(ctx, "resume", map[string]string{"destination": destination})
}

// WebhookSecret is a new secret, and until when the one before signs too.
type WebhookSecret struct {
	Secret       string    `json:"webhookSecret"`
	OverlapUntil time.Time `json:"overlapUntil"`
}

// RotateSecret makes a new secret; the present one signs beside it for the
// overlap, 0 to 720 h. A negative one means the server's, 24 h.
func (w Webhooks) RotateSecret(ctx context.Context, overlap time.Duration) (*WebhookSecret, error) {
	body := map[string]int64{}
	if overlap >= 0 {
		body["overlapMs"] = overlap.Milliseconds()
	}
	var made WebhookSecret
	err := w.c.do(ctx, call{method: http.MethodPost, path: w.path("secret"), body: body}, &made)
	return &made, err
}

func (w Webhooks) path(what string) string { return v1("endpoints", w.endpoint, "webhooks", what) }

func (w Webhooks) replayed(ctx context.Context, what string, body any) (int, error) {
	var got struct {
		Replayed int `json:"replayed"`
	}
	err := w.c.do(ctx, call{method: http.MethodPost, path: w.path(what), body: body}, &got)
	return got.Replayed, err
}
