package client

import (
	"context"
	"net/http"
	"time"

	"flightline/shared/api"
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
type WebhookDelivery = api.WebhookDelivery

// WebhookDeliveries is a page of the log.
type WebhookDeliveries = api.WebhookDeliveries

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
	query := queryOf(map[string]string{"job": string(q.Job), "cursor": q.Cursor, "since": instantText(q.Since), "limit": countText(q.Limit)})
	if q.Failed {
		query.Set("failed", "true")
	}
	return one[WebhookDeliveries](ctx, w.c, get(w.path("deliveries"), query))
}

// WebhookDestination is a receiver that keeps failing, or is paused.
type WebhookDestination = api.WebhookDestination

// Destinations lists receivers that keep failing or are paused.
func (w Webhooks) Destinations(ctx context.Context) ([]WebhookDestination, error) {
	return value[[]WebhookDestination](ctx, w.c, get(w.path("destinations"), nil))
}

// Replay sends the webhook of a job again, whatever became of it.
func (w Webhooks) Replay(ctx context.Context, id job.ID) (replayed int, err error) {
	return w.replayed(ctx, "replay", api.WebhookReplay{Job: id})
}

// ReplaySince sends again what was given up since then.
func (w Webhooks) ReplaySince(ctx context.Context, since time.Time) (replayed int, err error) {
	return w.replayed(ctx, "replay", api.WebhookReplay{Since: since.UTC().Format(time.RFC3339Nano)})
}

// Pause keeps webhooks back that go to the destination, an address or the
// scheme, host and port of one.
func (w Webhooks) Pause(ctx context.Context, destination, reason string) (*WebhookDestination, error) {
	body := api.DestinationChange{Destination: destination, Reason: reason}
	return one[WebhookDestination](ctx, w.c, post(w.path("pause"), body))
}

// Resume lets them through again, those that were kept back first.
func (w Webhooks) Resume(ctx context.Context, destination string) (replayed int, err error) {
	return w.replayed(ctx, "resume", api.DestinationChange{Destination: destination})
}

// WebhookSecret is a new secret, and until when the one before signs too.
type WebhookSecret = api.WebhookSecret

// RotateSecret makes a new secret; the present one signs beside it for the
// overlap, 0 to 720 h. A negative one means the server's, 24 h.
func (w Webhooks) RotateSecret(ctx context.Context, overlap time.Duration) (*WebhookSecret, error) {
	var body api.SecretRotation
	if overlap >= 0 {
		body.OverlapMs = new(overlap.Milliseconds())
	}
	return one[WebhookSecret](ctx, w.c, post(w.path("secret"), body))
}

func (w Webhooks) path(what string) string { return v1("endpoints", w.endpoint, "webhooks", what) }

func (w Webhooks) replayed(ctx context.Context, what string, body any) (int, error) {
	got, err := value[api.WebhooksReplayed](ctx, w.c, call{method: http.MethodPost, path: w.path(what), body: body, wait: longWait})
	return got.Replayed, err
}
