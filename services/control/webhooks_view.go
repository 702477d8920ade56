package control

import (
	"strconv"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

type replayBody struct {
	Job   job.ID `json:"job"`
	Since string `json:"since"`
}

type destinationBody struct {
	Destination string `json:"destination"`
	Reason      string `json:"reason"`
}

type rotateBody struct {
	OverlapMs *int64 `json:"overlapMs"`
}

type replayedView struct {
	Replayed int `json:"replayed"`
}

type secretView struct {
	WebhookSecret string `json:"webhookSecret"`
	// OverlapUntil is when the secret before ceases to sign.
	OverlapUntil time.Time `json:"overlapUntil"`
}

// deliveryView is one attempt.
type deliveryView struct {
	Job job.ID `json:"job"`
	// Attempt is that of the job, Try that of the delivery.
	Attempt    int                   `json:"attempt"`
	Try        int                   `json:"try"`
	Replay     bool                  `json:"replay"`
	Outcome    queue.DeliveryOutcome `json:"outcome"`
	StartedAt  time.Time             `json:"startedAt"`
	DurationMs int64                 `json:"durationMs"`
	URL        string                `json:"url"`
	// Status is 0 if there was no answer.
	Status int    `json:"status"`
	Answer string `json:"answer,omitempty"`
	Error  string `json:"error,omitempty"`
	// NextAt is when the next attempt is due, after one that failed.
	NextAt *time.Time `json:"nextAt,omitempty"`
}

type deliveriesView struct {
	Deliveries []deliveryView `json:"deliveries"`
	HasMore    bool           `json:"hasMore"`
	Cursor     string         `json:"cursor,omitempty"`
}

func deliveriesViewOf(list []queue.Delivery, next uint64) deliveriesView {
	v := deliveriesView{Deliveries: make([]deliveryView, 0, len(list)), HasMore: next > 0}
	if next > 0 {
		v.Cursor = strconv.FormatUint(next, 10)
	}
	for _, d := range list {
		one := deliveryView{
			Job: d.Job, Attempt: d.Attempt, Try: d.Try, Replay: d.Replay != "", Outcome: d.Outcome,
			StartedAt: d.Started.UTC().Truncate(time.Millisecond), DurationMs: d.Took.Milliseconds(),
			URL: d.URL, Status: d.Status, Answer: d.Answer, Error: d.Error,
		}
		if !d.Next.IsZero() {
			at := d.Next.UTC().Truncate(time.Millisecond)
			one.NextAt = &at
		}
		v.Deliveries = append(v.Deliveries, one)
	}
	return v
}

// destinationView is a receiver that keeps failing or is paused.
type destinationView struct {
	Destination string `json:"destination"`
	// Failures are the webhooks given up in a row.
	Failures int        `json:"failures"`
	Paused   bool       `json:"paused"`
	Reason   string     `json:"reason,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
}

func destinationViewOf(d registry.Destination) destinationView {
	v := destinationView{Destination: d.Origin, Failures: d.Failures, Paused: d.Paused, Reason: d.Reason}
	if d.Paused {
		since := d.Since.UTC().Truncate(time.Millisecond)
		v.Since = &since
	}
	return v
}
