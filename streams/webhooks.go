package streams

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
)

// Webhooks is the name of the work queue of webhook tasks to be delivered.
const Webhooks = "WEBHOOKS"

// WebhookConsumer is its durable consumer, which all webhook instances share.
const WebhookConsumer = "webhook"

// WebhookWait is how long a webhook task stays with an instance that says
// nothing of it.
const WebhookWait = 45 * time.Second

// Undelivered is the name of the stream of webhook tasks of which no attempt is due:
// given up, or for a destination that is paused. Replay brings them back.
const Undelivered = "UNDELIVERED"

// Deliveries is the name of the log of attempts to deliver. The last message
// of a subject says how often a webhook task was tried.
const Deliveries = "DELIVERIES"

// BucketDestinations says which receivers keep failing, and which are paused.
const BucketDestinations = "destinations"

// WebhookSubject is where the webhook task of one attempt waits for delivery.
func WebhookSubject(endpoint string, id job.ID, attempt int) string {
	return fmt.Sprintf("webhooks.%s.%s.%d", endpoint, id, attempt)
}

// UndeliveredSubject is where it waits while no attempt is due.
func UndeliveredSubject(endpoint string, id job.ID, attempt int) string {
	return fmt.Sprintf("undelivered.%s.%s.%d", endpoint, id, attempt)
}

// UndeliveredFilter matches those of an endpoint and a job; "" stands for any.
func UndeliveredFilter(endpoint string, id job.ID) string {
	return "undelivered." + cmp.Or(endpoint, "*") + "." + cmp.Or(string(id), "*") + ".*"
}

// DeliverySubject is the log of one webhook task's deliveries.
func DeliverySubject(endpoint string, id job.ID, attempt int) string {
	return fmt.Sprintf("deliveries.%s.%s.%d", endpoint, id, attempt)
}

// DeliveryFilter matches the logs of an endpoint and a job; "" stands for any.
func DeliveryFilter(endpoint string, id job.ID) string {
	return "deliveries." + cmp.Or(endpoint, "*") + "." + cmp.Or(string(id), "*") + ".*"
}

// ParseWebhook takes a WebhookSubject, an UndeliveredSubject or a
// DeliverySubject apart.
func ParseWebhook(subject string) (endpoint string, id job.ID, attempt int, err error) {
	t := strings.Split(subject, ".")
	if len(t) != 4 || t[0] != "webhooks" && t[0] != "undelivered" && t[0] != "deliveries" {
		return "", "", 0, fmt.Errorf("streams: %q is no webhook task", subject)
	}
	if attempt, err = strconv.Atoi(t[3]); err != nil {
		return "", "", 0, fmt.Errorf("streams: %q: attempt: %w", subject, err)
	}
	return t[1], job.ID(t[2]), attempt, nil
}

// KeptSubject holds the parts of a webhook's own copy of a payload. The token
// keeps two writers apart.
func KeptSubject(p int, endpoint string, id job.ID, attempt int, side Side, token string) string {
	return fmt.Sprintf("kept.%d.%s.%s.%d.%s.%s", p, endpoint, id, attempt, side, token)
}

// KeptFilter matches the copies of an endpoint's payloads.
func KeptFilter(p int, endpoint string) string { return fmt.Sprintf("kept.%d.%s.>", p, endpoint) }

func webhooksConfig(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Webhooks, Subjects: []string{"webhooks.>"}, Retention: jetstream.WorkQueuePolicy,
		Storage: jetstream.FileStorage, Replicas: c.replicas(), MaxAge: WebhooksAge, MaxMsgsPerSubject: 1, Duplicates: time.Second,
		AllowMsgTTL: true, AllowDirect: true,
	}
}

// webhookConsumer gets headers only: a webhook task that is put off, once or a
// hundred times, must not cost its payload. Those put off count as out, hence
// no bound.
func webhookConsumer() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: WebhookConsumer, FilterSubject: "webhooks.>", HeadersOnly: true,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: WebhookWait, MaxDeliver: -1, MaxAckPending: -1,
	}
}

func undeliveredConfig(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Undelivered, Subjects: []string{"undelivered.>"},
		Storage: jetstream.FileStorage, Replicas: c.replicas(), MaxAge: WebhooksAge, MaxMsgsPerSubject: 1, Duplicates: time.Second,
		AllowMsgTTL: true, AllowDirect: true,
	}
}

func deliveriesConfig(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Deliveries, Subjects: []string{"deliveries.>"},
		Storage: jetstream.FileStorage, Replicas: c.replicas(), MaxAge: WebhooksAge, Duplicates: time.Second, AllowDirect: true,
	}
}
