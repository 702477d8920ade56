package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

// Position returns how far the reader of that name had come when it last said
// so, 0 if it never did. It returns ErrUnavailable.
func (l *Log) Position(ctx context.Context, name string) (uint64, error) {
	kv, err := l.bucket(ctx, streams.BucketPositions)
	if err != nil {
		return 0, err
	}
	entry, err := kv.Get(ctx, name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, away(ctx, "read position of "+name, err)
	}
	var seq uint64
	if err := json.Unmarshal(entry.Value(), &seq); err != nil {
		return 0, fmt.Errorf("read position of %s: %w", name, err)
	}
	return seq, nil
}

// SetPosition says that all up to seq is done. It needs no comparison: if two
// readers of a name say so, both are right. It returns ErrUnavailable.
func (l *Log) SetPosition(ctx context.Context, name string, seq uint64) error {
	kv, err := l.bucket(ctx, streams.BucketPositions)
	if err != nil {
		return err
	}
	data, err := json.Marshal(seq)
	if err != nil {
		return fmt.Errorf("write position of %s: %w", name, err)
	}
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if _, err := kv.Put(within, name, data); err != nil {
		return away(ctx, "write position of "+name, err)
	}
	return nil
}
