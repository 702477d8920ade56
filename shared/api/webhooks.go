package api

import (
	"time"

	"flightline/shared/job"
)

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
	// Next is when the next attempt is due, after a failed attempt.
	Next time.Time `json:"nextAt,omitzero"`
}

// WebhookDeliveries is a page of the log.
type WebhookDeliveries struct {
	Deliveries []WebhookDelivery `json:"deliveries"`
	HasMore    bool              `json:"hasMore"`
	// Cursor brings the next page, if there is one.
	Cursor string `json:"cursor,omitempty"`
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

// WebhookSecret is a new secret, and until when the one before signs too.
type WebhookSecret struct {
	Secret       string    `json:"webhookSecret"`
	OverlapUntil time.Time `json:"overlapUntil"`
}

// WebhookReplay names the webhooks to send again: that of a job, or those given up
// since an instant or for a duration, as web.Since reads it.
type WebhookReplay struct {
	Job   job.ID `json:"job,omitempty"`
	Since string `json:"since,omitempty"`
}

// WebhooksReplayed counts the webhooks that are sent again.
type WebhooksReplayed struct {
	Replayed int `json:"replayed"`
}

// DestinationChange pauses or resumes the webhooks to a destination, an address or
// the scheme, host and port of one.
type DestinationChange struct {
	Destination string `json:"destination"`
	Reason      string `json:"reason,omitempty"`
}

// SecretRotation makes a new secret. The present one signs beside it for OverlapMs.
type SecretRotation struct {
	OverlapMs *int64 `json:"overlapMs,omitempty"`
}
