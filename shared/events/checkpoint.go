package events

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/streams"
)

// Checkpoint says how far the writes of a partition's records are in the log, and
// what of it an appender has to know. The zero value knows nothing: all
// of the log has to be read.
type Checkpoint struct {
	// Records is the last write whose events are in the log, on the disk.
	Records uint64
	// Log is the log's last entry at that time.
	Log uint64
	// Unfinished are the attempts that have events in the log up to there and may get
	// more, and those whose end is in the log but was written after Records.
	Unfinished []Recorded
}

// Recorded is how much of an attempt is in the log.
type Recorded struct {
	Endpoint string    `json:"endpoint"`
	Job      job.ID    `json:"job"`
	Attempt  int       `json:"attempt"`
	Events   int       `json:"events"` // how many
	Over     bool      `json:"over,omitempty"`
	Expires  time.Time `json:"expires"`
}

// wireCheckpoint is its JSON. Unfinished is compressed, as ids take most of it and a
// message of the bus has an end: some 30 bytes an attempt.
type wireCheckpoint struct {
	Records    uint64 `json:"records"`
	Log        uint64 `json:"log"`
	Unfinished []byte `json:"unfinished,omitempty"`
}

// Checkpoint returns the checkpoint of that name, or the zero value, also if it cannot be
// decoded. A version before docs/adr/0057 wrote Records alone. It returns
// bus.ErrUnavailable.
func (l *Log) Checkpoint(ctx context.Context, name string) (Checkpoint, error) {
	data, err := l.positionValue(ctx, name)
	if err != nil || data == nil {
		return Checkpoint{}, err
	}
	c, err := parseCheckpoint(data)
	if err != nil {
		l.warnPosition(ctx, name, err)
		return Checkpoint{}, nil
	}
	return c, nil
}

// warnPosition warns of a position that cannot be decoded: all is read again, and what is
// there is recognised.
func (l *Log) warnPosition(ctx context.Context, name string, err error) {
	l.log.WarnContext(ctx, "position cannot be decoded and begins again", "stream", streams.Bucket(streams.BucketPositions), "position", name, "err", err)
}

// ErrTooLarge means that a checkpoint has more unfinished attempts than a message of
// the bus takes, some 30,000 of them in 1 MB.
var ErrTooLarge = errors.New("events: a checkpoint is larger than a message may be")

// SetCheckpoint stores a checkpoint. It needs no comparison: if two appenders say
// how far they have come, both are right. It returns ErrTooLarge or
// bus.ErrUnavailable.
func (l *Log) SetCheckpoint(ctx context.Context, name string, c Checkpoint) error {
	w := wireCheckpoint{Records: c.Records, Log: c.Log}
	if len(c.Unfinished) > 0 {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if err := errors.Join(json.NewEncoder(z).Encode(c.Unfinished), z.Close()); err != nil {
			return fmt.Errorf("write position of %s: %w", name, err)
		}
		w.Unfinished = packed.Bytes()
	}
	return l.setPosition(ctx, name, w)
}

// maxUnfinishedBytes bounds what a checkpoint is unpacked to.
const maxUnfinishedBytes = 256 << 20

func parseCheckpoint(data []byte) (c Checkpoint, err error) {
	if json.Unmarshal(data, &c.Records) == nil {
		return c, nil
	}
	var w wireCheckpoint
	if err := json.Unmarshal(data, &w); err != nil {
		return c, err
	}
	c.Records, c.Log = w.Records, w.Log
	if len(w.Unfinished) == 0 {
		return c, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(w.Unfinished))
	if err != nil {
		return c, err
	}
	return c, json.NewDecoder(io.LimitReader(z, maxUnfinishedBytes)).Decode(&c.Unfinished)
}

// Position returns how far the reader of that name had come when it last said
// so, 0 if it never did, or that cannot be decoded. It returns bus.ErrUnavailable.
func (l *Log) Position(ctx context.Context, name string) (uint64, error) {
	data, err := l.positionValue(ctx, name)
	if err != nil || data == nil {
		return 0, err
	}
	var seq uint64
	if err := json.Unmarshal(data, &seq); err != nil {
		l.warnPosition(ctx, name, err)
		return 0, nil
	}
	return seq, nil
}

// positionSubject holds a position.
func positionSubject(name string) string { return streams.KeySubject(streams.BucketPositions, name) }

// positionValue is the JSON of a position, nil if it was never set.
func (l *Log) positionValue(ctx context.Context, name string) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := l.bus.LeaderLast(within, streams.Bucket(streams.BucketPositions), positionSubject(name))
	if errors.Is(err, bus.ErrNoMessage) {
		return nil, nil
	}
	if err != nil {
		return nil, away(ctx, "read position of "+name, err)
	}
	return m.Data, nil
}

// setPosition says how far a reader of the name is: the sequence up to which all is done, or a
// wireCheckpoint. It needs no comparison: if two readers of a name say so, both are right. It
// returns ErrTooLarge or bus.ErrUnavailable.
func (l *Log) setPosition(ctx context.Context, name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write position of %s: %w", name, err)
	}
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := l.js.Publish(within, positionSubject(name), data); errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("write position of %s: %w: %d bytes", name, ErrTooLarge, len(data))
	} else if err != nil {
		return away(ctx, "write position of "+name, err)
	}
	return nil
}
