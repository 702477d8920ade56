package admin

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

	"flightline/streams"
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
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(askTimeout))
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

// heartbeats are the buckets whose values count for seconds. A server that is killed again soon
// after its start takes those that expired before it for lost.
var heartbeats = []string{
	streams.Bucket(streams.BucketWorkers), streams.Bucket(streams.BucketInstances),
	streams.Bucket(streams.BucketLeaders), streams.Bucket(streams.BucketMachines),
}

// MeaningOfLoss says what it means for people that messages of a stream are lost.
func MeaningOfLoss(stream string) string {
	part, ours := streams.PartOf(stream)
	if !ours {
		return "messages of a stream that is not Flightline's are lost"
	}
	if slices.Contains(heartbeats, stream) {
		return "heartbeats are gone; what lives writes its own again within seconds, and nothing else is lost"
	}
	return map[streams.Part]string{
		streams.PartSettings:    "endpoints, keys or other settings are gone, or as they were before their last change",
		streams.PartPositions:   "events are recorded again and recognised; nothing is lost",
		streams.PartCounts:      "totals of an endpoint may be too low",
		streams.PartEvents:      "events, or webhooks that waited for their delivery, are lost",
		streams.PartUndelivered: "webhooks that were put aside, or their log, are lost",
		streams.PartPayloads:    "large inputs or outputs are lost: a job that needs one fails",
		streams.PartJobs:        "jobs that waited there are lost; jobs that ran are kept until their deadline",
		streams.PartRecords:     "jobs that ended are unknown or as before their last change, and a running job may run again",
		streams.PartOutput:      "chunks of streams are lost",
	}[part]
}
