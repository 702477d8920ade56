package operate

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// unsettled is how long a cluster may take until all its servers know of
	// what was just made, and it has a leader.
	unsettled = 30 * time.Second
	// askAgain is the pause between two attempts.
	askAgain = 100 * time.Millisecond
)

// patiently calls do again while nobody is there to be asked: in a cluster other
// servers learn a moment later of what one of them has made, and a new stream
// has no leader at first. What was asked of nobody was not done, so it bears
// repeating.
func patiently(ctx context.Context, do func() error) error {
	late := time.NewTimer(unsettled)
	defer late.Stop()
	for {
		err := do()
		if err == nil || !nobodyThere(err) {
			return err
		}
		select {
		case <-time.After(askAgain):
		case <-late.C:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errNoLeader is a stream that cannot be asked yet.
var errNoLeader = errors.New("the stream has no leader")

func nobodyThere(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, errNoLeader)
}

// settled returns the stream once it has a leader.
func settled(ctx context.Context, js jetstream.JetStream, name string) (s jetstream.Stream, err error) {
	err = patiently(ctx, func() error {
		if s, err = js.Stream(ctx, name); err != nil {
			return err
		}
		if c := s.CachedInfo().Cluster; c != nil && c.Name != "" && c.Leader == "" {
			return errNoLeader
		}
		return nil
	})
	return s, err
}
