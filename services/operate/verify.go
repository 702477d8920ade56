package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// verifyBytes bounds what VerifyStored reads, verifyTimeout how long it may take.
	verifyBytes   = 256 << 20
	verifyTimeout = time.Minute
)

// VerifyStored reads these streams, the small ones first and 256 MB at most, logs
// an error for each that is damaged, and returns the names of those. It passes over a
// stream that does not exist, and one with several copies: its server gets what it
// lacks from the others. It changes nothing. An error means that it could not look.
func VerifyStored(ctx context.Context, nc *nats.Conn, names []string, log *slog.Logger) (damaged []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(within))
	if err != nil {
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	all, err := single(ctx, js, names)
	if err != nil {
		return nil, err
	}
	left, unread := uint64(verifyBytes), uint64(0)
	for _, info := range all {
		if info.State.Bytes > left {
			unread += info.State.Bytes
			continue
		}
		left -= info.State.Bytes
		bad, err := verifyStream(ctx, nc, js, info.Config.Name, log)
		if err != nil {
			return damaged, err
		}
		if bad {
			damaged = append(damaged, info.Config.Name)
		}
	}
	if unread > 0 {
		log.InfoContext(ctx, "not all stored messages were looked at for damage: there are too many; 'flightline doctor --deep' reads all", "bytes", unread)
	}
	return damaged, nil
}

// single are the streams that exist with one copy, the small ones first.
func single(ctx context.Context, js jetstream.JetStream, names []string) ([]*jetstream.StreamInfo, error) {
	var all []*jetstream.StreamInfo
	for _, name := range names {
		s, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look at stream %s: %w", name, err)
		}
		if info := s.CachedInfo(); info.Config.Replicas <= 1 {
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b *jetstream.StreamInfo) int { return cmp.Compare(a.State.Bytes, b.State.Bytes) })
	return all, nil
}

// verifyStream reports whether a stream is damaged.
func verifyStream(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, name string, log *slog.Logger) (bool, error) {
	w := &walk{nc: nc, js: js, stream: name, each: func(*nats.Msg) error { return nil }}
	err := w.run(ctx)
	var l loss
	if err == nil {
		l, err = w.damage(ctx)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, errUncounted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read stream %s: %w", name, err)
	}
	if l.unreadable > 0 {
		log.ErrorContext(ctx, "the files of a stream are damaged", "stream", name, "found", l.text(), "means", MeaningOfLoss(name), "do", beforeKill)
	}
	if l.lost != nil {
		log.ErrorContext(ctx, "the files of a stream were damaged", "stream", name, "found", l.lostText(), "means", MeaningOfLoss(name), "do", afterCut)
	}
	return l.unreadable > 0 || l.lost != nil, nil
}
