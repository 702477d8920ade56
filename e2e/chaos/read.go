package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

// readWithin bounds the reading of one stream.
const readWithin = 30 * time.Second

// each reads all that a stream holds, from its leader.
func (s *site) each(ctx context.Context, name string, do func(*jetstream.RawStreamMsg)) error {
	within, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	stream, err := s.js.Stream(within, name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	for next := uint64(1); ; {
		m, err := stream.GetMsg(within, next, jetstream.WithGetMsgSubject(">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		do(m)
		next = m.Sequence + 1
	}
}

// chunks reads all streamed output, by run, in the order in which it lies.
func (s *site) chunks(ctx context.Context) (map[string][][]byte, error) {
	found := map[string][][]byte{}
	err := s.each(ctx, streams.Output(0), func(m *jetstream.RawStreamMsg) {
		found[m.Subject] = append(found[m.Subject], m.Data)
	})
	return found, err
}

// scan tells the subjects of all that a stream holds, from its leader: for
// streams of which each would take minutes.
func (s *site) scan(ctx context.Context, name string, do func(subject string, seq uint64)) error {
	within, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	stream, err := s.js.Stream(within, name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if stream.CachedInfo().State.Msgs == 0 {
		return nil
	}
	consumer, err := stream.OrderedConsumer(within, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(within))
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		do(m.Subject(), meta.Sequence.Stream)
		if meta.NumPending == 0 {
			return nil
		}
	}
}
