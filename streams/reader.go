package streams

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
)

// Subscriber names the durable consumer of Events that a reader may use.
const Subscriber = "subscriber"

// ApplySubscriber makes that consumer exist. One event is under way at a time,
// so that they come in order whatever has to be delivered again.
func ApplySubscriber(ctx context.Context, js jetstream.JetStream) error {
	return ensureConsumer(ctx, js, Events, jetstream.ConsumerConfig{
		Durable: Subscriber, AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, MaxAckPending: 1,
	})
}

// EventReader lists the subjects on which a reader of the event log may send
// requests: those of consumers that exist, and of reading by sequence. It may
// make no consumer, as a consumer can deliver to any subject.
func EventReader() []string {
	return []string{
		bus.ConsumerInfo(Events, "*"),
		bus.PullNext(Events, "*"),
		"$JS.ACK." + Events + ".>",
		bus.DirectGet(Events),
	}
}
