package streams

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/retry"
)

const (
	// ensureTimeout bounds the attempts at one stream or consumer, or to look at one.
	ensureTimeout = 15 * time.Second
	// attemptTimeout bounds the first attempt; each further one may take twice as long.
	attemptTimeout = 250 * time.Millisecond
	// maxRetryDelay bounds the pause between two attempts, which is random:
	// processes that started together must not ask together again.
	maxRetryDelay = 100 * time.Millisecond
)

// untilAnswered repeats try, which may mean that another process makes the same just
// now: a stream in a cluster answers nothing before it has a leader. doing is for errors.
func untilAnswered(ctx context.Context, doing string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, ensureTimeout)
	defer cancel()
	for timeout := attemptTimeout; ; timeout *= 2 {
		within, cancel := context.WithTimeout(ctx, timeout)
		err := try(within)
		cancel()
		if err == nil {
			return nil
		}
		if !inTheMaking(err) {
			return fmt.Errorf("%s: %w", doing, err)
		}
		if retry.Sleep(ctx, rand.N(maxRetryDelay)) != nil { //nolint:gosec // jitter
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
}

// inTheMaking reports whether err may mean that another process creates the same:
// no answer, no leader yet, or it appeared between two requests.
func inTheMaking(err error) bool {
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.ErrorCode == jsClusterNotAvailable {
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse)
}

const (
	// jsClusterNotAvailable is the server's code for a group without a leader.
	jsClusterNotAvailable jetstream.ErrorCode = 10008
	// jsStorageExceeded is its code for bytes that it cannot reserve, jsNoPeers that of a
	// cluster, among other things that it has no servers for.
	jsStorageExceeded jetstream.ErrorCode = 10047
	jsNoPeers         jetstream.ErrorCode = 10005
)

// lacksStorage reports whether NATS refused to reserve the bytes of a stream.
func lacksStorage(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (refused.ErrorCode == jsStorageExceeded || refused.ErrorCode == jsNoPeers && strings.Contains(refused.Description, "insufficient storage"))
}

// ensure makes the stream and its consumers exist.
func (w Wanted) ensure(ctx context.Context, js jetstream.JetStream) error {
	if err := ensureStream(ctx, js, w.Config); err != nil {
		return err
	}
	for _, c := range w.Consumers {
		if err := ensureConsumer(ctx, js, w.Config.Name, c); err != nil {
			return err
		}
	}
	return nil
}

// ensureStream makes a stream exist as it is wanted, while other processes may make the
// same. If two create the same at the same time, a cluster may answer neither: the second
// proposal replaces the reply subject of the first. So it asks before it creates, does not
// wait long for an answer, and asks again.
func ensureStream(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig) error {
	return untilAnswered(ctx, "apply stream "+c.Name, func(ctx context.Context) error {
		got, err := js.Stream(ctx, c.Name)
		if err == nil && len(Differences(c, got.CachedInfo().Config)) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		_, err = js.CreateOrUpdateStream(ctx, c)
		if lacksStorage(err) && c.MaxBytes > 0 {
			return fmt.Errorf("NATS cannot reserve %d bytes; give it more storage, or --logs-max-bytes a smaller number: %w", c.MaxBytes, err) // only logs reserve any
		}
		return err
	})
}

// ensureConsumer is ensureStream for a consumer.
func ensureConsumer(ctx context.Context, js jetstream.JetStream, stream string, c jetstream.ConsumerConfig) error {
	return untilAnswered(ctx, fmt.Sprintf("apply consumer %s of %s", c.Durable, stream), func(ctx context.Context) error {
		got, err := js.Consumer(ctx, stream, c.Durable)
		if err == nil && len(ConsumerDifferences(c, got.CachedInfo().Config)) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
		_, err = js.CreateOrUpdateConsumer(ctx, stream, c)
		return err
	})
}
