package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Cursor is how far those readers of a job's stream have come that do not keep
// count themselves. They share it.
type Cursor struct {
	// Seq is that of the last chunk they were given; 0 before the first.
	Seq uint64

	rev uint64 // of the message that holds it; 0: there is none
}

// Cursor reads the cursor of a job, which need not exist. It returns
// ErrUnavailable.
func (q *Queue) Cursor(ctx context.Context, e endpoint.Endpoint, id job.ID) (Cursor, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	m, err := q.leaderLast(ctx, streams.Bucket(streams.BucketCursors), streams.CursorSubject(e.ID, id))
	if errors.Is(err, errNoMessage) {
		return Cursor{}, nil
	}
	if err != nil {
		return Cursor{}, err
	}
	seq, err := strconv.ParseUint(string(m.data), 10, 64)
	if err != nil {
		return Cursor{}, fmt.Errorf("read cursor of job %s: %w", id, err)
	}
	return Cursor{Seq: seq, rev: m.seq}, nil
}

// MoveCursor moves from, a cursor of j as it was read, on to the sequence seq.
// It never moves one back: if another reader was faster and came further, it
// does nothing. The cursor lives an hour longer than the job may. It returns
// ErrUnavailable.
func (q *Queue) MoveCursor(ctx context.Context, j *job.Job, from Cursor, seq uint64) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for from.Seq < seq {
		m := &nats.Msg{Subject: streams.CursorSubject(j.Endpoint, j.ID), Header: nats.Header{}}
		m.Data = strconv.AppendUint(nil, seq, 10)
		m.Header.Set(jetstream.MsgTTLHeader, ttlHeader(q.Now(), j.Expires.Add(streams.Margin)))
		_, err := q.publish(ctx, streams.Bucket(streams.BucketCursors), m, nuid.Next(), from.rev)
		if !errors.Is(err, errConflict) {
			return err
		}
		if from, err = q.Cursor(ctx, endpoint.Endpoint{ID: j.Endpoint}, j.ID); err != nil {
			return err
		}
	}
	return nil
}
