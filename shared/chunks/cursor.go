package chunks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/streams"
)

// Cursor is how far the readers of a job's stream have come that keep no count
// themselves. They share it.
type Cursor struct {
	// Seq is that of the last chunk they were given; 0 before the first.
	Seq uint64

	rev uint64 // of the message that holds it; 0: no message does
}

// ReadCursor reads the cursor of a job, which need not exist. It returns
// bus.ErrUnavailable.
func ReadCursor(ctx context.Context, c *bus.Client, endpointID string, id job.ID) (Cursor, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	m, err := c.LeaderLast(ctx, streams.Bucket(streams.BucketCursors), streams.CursorSubject(endpointID, id))
	if errors.Is(err, bus.ErrNoMessage) {
		return Cursor{}, nil
	}
	if err != nil {
		return Cursor{}, err
	}
	seq, err := strconv.ParseUint(string(m.Data), 10, 64)
	if err != nil {
		return Cursor{}, fmt.Errorf("read cursor of job %s: %w", id, err)
	}
	return Cursor{Seq: seq, rev: m.Seq}, nil
}

// MoveCursor moves from, a cursor of j as it was read, on to the sequence seq.
// It never moves one back: if another reader was faster and came further, it
// does nothing. The cursor lives an hour longer than the job may. It returns
// bus.ErrUnavailable.
func MoveCursor(ctx context.Context, c *bus.Client, j *job.Job, from Cursor, seq uint64) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	for from.Seq < seq {
		err := from.write(ctx, c, j, seq, j.Expires)
		if !errors.Is(err, bus.ErrConflict) {
			return err
		}
		if from, err = ReadCursor(ctx, c, j.Endpoint, j.ID); err != nil {
			return err
		}
	}
	return nil
}

// KeepCursor lets the cursor of a job, if it has one, live for as long as a job may that
// expires then. It returns bus.ErrUnavailable.
func KeepCursor(ctx context.Context, c *bus.Client, j *job.Job, expires time.Time) error {
	for {
		now, err := ReadCursor(ctx, c, j.Endpoint, j.ID)
		if err != nil || now.Seq == 0 {
			return err
		}
		if err := now.write(ctx, c, j, now.Seq, expires); !errors.Is(err, bus.ErrConflict) {
			return err
		}
	}
}

// write replaces the cursor as it was read. It returns bus.ErrConflict if another reader
// was faster.
func (from Cursor) write(ctx context.Context, c *bus.Client, j *job.Job, seq uint64, expires time.Time) error {
	m := &nats.Msg{Subject: streams.CursorSubject(j.Endpoint, j.ID), Header: nats.Header{}}
	m.Data = strconv.AppendUint(nil, seq, 10)
	m.Header.Set(jetstream.MsgTTLHeader, bus.MessageTTL(c.Now(), expires.Add(streams.Margin)))
	_, err := c.Publish(ctx, streams.Bucket(streams.BucketCursors), m, from.rev)
	return err
}

// sequenceBits is how much of a chunk's place is the sequence of its message. What
// is above says which chunk of the message it is; together they fit into the 53
// bits that all JSON parsers read exactly.
const sequenceBits = 43

// cursorOf is the place of the chunk i of the n in the message seq. That of the
// last is the sequence itself, since its reader has read all of the message.
func cursorOf(seq uint64, i, n int) uint64 {
	if i == n-1 {
		return seq
	}
	return uint64(i+1)<<sequenceBits | seq //nolint:gosec // i is small
}

// splitCursor returns the sequence behind which to read on, and how many chunks of
// the next message were read before.
func splitCursor(after uint64) (seq uint64, read int) {
	seq, read = after&(1<<sequenceBits-1), int(after>>sequenceBits)
	if read > 0 && seq > 0 {
		seq--
	}
	return seq, read
}
