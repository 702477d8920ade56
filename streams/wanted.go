package streams

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

// Wanted is a stream as Apply or ApplyEndpoint makes it, with its consumers.
type Wanted struct {
	Config    jetstream.StreamConfig
	Consumers []jetstream.ConsumerConfig
}

// AllWanted are all streams that there should be for these endpoints, those of
// the buckets included, in the order in which they are made.
func AllWanted(c Config, endpoints []endpoint.Endpoint) []Wanted {
	var all []Wanted
	for p := range c.PartitionCount() {
		all = append(all, Wanted{recordsConfig(c, p), []jetstream.ConsumerConfig{dueConfig(p)}},
			Wanted{Config: outputConfig(c, p)}, Wanted{Config: payloadsConfig(c, p)}, Wanted{Config: logsConfig(c, p)})
	}
	for _, s := range sharedConfigs(c) {
		w := Wanted{Config: s}
		if s.Name == Webhooks {
			w.Consumers = append(w.Consumers, webhookConsumer())
		}
		all = append(all, w)
	}
	for _, e := range endpoints {
		all = append(all, Wanted{JobsConfig(c, e.ID), jobConsumers(e)})
	}
	return all
}

// jobConsumers are the consumers of an endpoint's queue.
func jobConsumers(e endpoint.Endpoint) []jetstream.ConsumerConfig {
	var all []jetstream.ConsumerConfig
	for _, class := range job.Classes() {
		all = append(all, ConsumerConfig(e, class))
	}
	return all
}

// Differences says in which settings a stream is not as wanted.
func Differences(want, got jetstream.StreamConfig) []string {
	d := new(differences)
	slices.Sort(want.Subjects)
	slices.Sort(got.Subjects)
	d.add("subjects", fmt.Sprint(want.Subjects), fmt.Sprint(got.Subjects))
	d.add("retention", want.Retention, got.Retention)
	d.add("discard", want.Discard, got.Discard)
	d.add("storage", want.Storage, got.Storage)
	d.add("replicas", max(1, want.Replicas), got.Replicas)
	d.add("max age", want.MaxAge, got.MaxAge)
	d.add("messages per subject", cmp.Or(max(-1, want.MaxMsgsPerSubject), -1), cmp.Or(got.MaxMsgsPerSubject, -1))
	d.add("messages", cmp.Or(want.MaxMsgs, -1), cmp.Or(got.MaxMsgs, -1))
	d.add("bytes", cmp.Or(want.MaxBytes, -1), cmp.Or(got.MaxBytes, -1))
	d.add("window of message ids", want.Duplicates, got.Duplicates)
	d.add("ttl of each message", want.AllowMsgTTL, got.AllowMsgTTL)
	d.add("schedules", want.AllowMsgSchedules, got.AllowMsgSchedules)
	d.add("direct get", want.AllowDirect, got.AllowDirect)
	d.add("atomic publish", want.AllowAtomicPublish, got.AllowAtomicPublish)
	d.add("rollup", want.AllowRollup || want.AllowMsgSchedules, got.AllowRollup)
	d.add("republish", republishOf(want), republishOf(got))
	d.add("sealed", want.Sealed, got.Sealed)
	for name, value := range want.Metadata {
		d.add("metadata "+name, value, got.Metadata[name])
	}
	return d.found
}

// ConsumerDifferences says in which settings a consumer is not as wanted. A
// pause makes no difference.
func ConsumerDifferences(want, got jetstream.ConsumerConfig) []string {
	d := new(differences)
	d.add("filter", want.FilterSubject, got.FilterSubject)
	d.add("ack policy", want.AckPolicy, got.AckPolicy)
	d.add("ack wait", want.AckWait, got.AckWait)
	d.add("deliveries", want.MaxDeliver, got.MaxDeliver)
	d.add("out at once", want.MaxAckPending, got.MaxAckPending)
	if want.MaxWaiting != 0 {
		d.add("open pulls", want.MaxWaiting, got.MaxWaiting)
	}
	d.add("headers only", want.HeadersOnly, got.HeadersOnly)
	return d.found
}

func republishOf(c jetstream.StreamConfig) string {
	if c.RePublish == nil {
		return "none"
	}
	return fmt.Sprintf("%s as %s, headers only: %v", c.RePublish.Source, c.RePublish.Destination, c.RePublish.HeadersOnly)
}

type differences struct{ found []string }

func (d *differences) add(setting string, want, got any) {
	if want != got {
		d.found = append(d.found, fmt.Sprintf("%s is %v, want %v", setting, got, want))
	}
}
