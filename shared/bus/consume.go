package bus

import (
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// ConsumerGone returns an option for Consume of a pull consumer, and the channel
// that then receives the server's error once the consumer no longer exists. Other
// errors pass: nats.go asks again.
func ConsumerGone() (jetstream.PullConsumeOpt, <-chan error) {
	gone := make(chan error, 1)
	return jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) {
			select {
			case gone <- err:
			default:
			}
		}
	}), gone
}
