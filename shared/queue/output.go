package queue

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// partHeader says of a message that it is a whole chunk, the first part of one,
// or the last.
const partHeader = "Flightline-Part"

// The values of that header.
const (
	wholeChunk = "whole"
	firstPart  = "more"
	lastPart   = "last"
)

// Chunk is one element of a job's stream.
type Chunk struct {
	// Seq is its place in the stream: pass it as after to read on from there.
	// It grows, also from run to run, and is never 0.
	Seq uint64
	// Data is the element as it was emitted, on one line.
	Data json.RawMessage
	// Attempt and Run tell which run emitted it.
	Attempt, Run int
}

// Emit appends a chunk to the run's output: the very element that readers of
// the job's stream will see, as {"output": …}, JSON. One over job.MaxChunk is
// split at character boundaries if it is a string or its output is; for any
// other Emit returns ErrChunkTooLarge. It returns ErrLost once the run no
// longer holds the job as far as this process knows, and ErrUnavailable.
func (l *Lease) Emit(ctx context.Context, chunk json.RawMessage) error {
	data, err := compact(chunk)
	if err != nil {
		return err
	}
	pieces, err := split(data)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.Status != job.InProgress || l.seen != nil || !l.t.q.Now().Before(l.rec.Expires) {
		return ErrLost
	}
	// A chunk that an outage cut off is finished first, whatever comes now; if
	// it is this one, that is all.
	sum, again := sha256.Sum256(data), len(l.unsent) > 0
	again = again && sum == l.emitting
	if err := l.received(ctx); err != nil {
		return err
	}
	if err := l.flush(ctx); err != nil || again {
		return err
	}
	l.emitting = sum
	for _, piece := range pieces {
		l.unsent = append(l.unsent, l.parts(piece)...)
	}
	return l.flush(ctx)
}

// parts are the at most two messages of one chunk. Only this lease writes the
// subject, which its run number makes its own.
func (l *Lease) parts(data []byte) []*nats.Msg {
	var parts []*nats.Msg
	for start := 0; start < len(data); start += partSize {
		end := min(start+partSize, len(data))
		m := &nats.Msg{Subject: l.outputSubject(), Data: data[start:end], Header: nats.Header{}}
		switch {
		case len(data) <= partSize:
			m.Header.Set(partHeader, wholeChunk)
		case end < len(data):
			m.Header.Set(partHeader, firstPart)
		default:
			m.Header.Set(partHeader, lastPart)
		}
		m.Header.Set(tokenHeader, nuid.Next())
		m.Header.Set(jetstream.MsgTTLHeader, ttlHeader(l.t.q.Now(), l.rec.physical().Add(streams.Margin)))
		parts = append(parts, m)
	}
	return parts
}

// flush stores what is unsent, in order.
func (l *Lease) flush(ctx context.Context) error {
	for len(l.unsent) > 0 {
		m := l.unsent[0]
		if err := l.catchUp(ctx); err != nil {
			return err
		}
		// Where nobody else writes, a write in flight is an earlier try of this
		// chunk, or a late one of the chunk before: it is waited for.
		sure := l.far && !l.unsure
		seq, err := l.t.q.publishAgain(ctx, streams.Output(l.t.at.partition), m, m.Header.Get(tokenHeader), l.chunk, sure)
		if l.far && errors.Is(err, errConflict) {
			l.behind, l.unsure = true, false
			continue // another process emitted a chunk of this run
		}
		if err != nil {
			l.unsure = true
			return fmt.Errorf("emit a chunk of job %s: %w", l.Job.ID, err)
		}
		l.chunk, l.unsure, l.unsent = seq, false, l.unsent[1:]
	}
	return nil
}

func (l *Lease) outputSubject() string {
	return streams.OutputSubject(l.t.at.partition, l.t.at.endpoint, l.Job.ID, l.Job.Attempt, l.Job.Run)
}

// Chunks reads what the current run of a job emitted after the sequence after
// (0: from its beginning), at most most messages of it. It returns
// job.ErrNotFound and ErrUnavailable.
func (q *Queue) Chunks(ctx context.Context, e endpoint.Endpoint, id job.ID, after uint64, most int) ([]Chunk, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	at := placeOf(e)
	r, err := q.latest(ctx, at, id)
	if err != nil {
		return nil, err
	}
	subject := streams.OutputSubject(at.partition, at.endpoint, id, r.Attempt, r.Run)
	msgs, err := untilAnswered(ctx, func() ([]*nats.Msg, error) {
		return q.batchGet(ctx, streams.Output(at.partition), subject, after+1, most)
	})
	if err != nil {
		return nil, err
	}
	return assemble(msgs, r)
}

// assemble joins parts. A chunk whose last part is missing is left for later,
// and one whose first part is missing was asked for from its middle.
func assemble(msgs []*nats.Msg, r *record) ([]Chunk, error) {
	var chunks []Chunk
	var first []byte
	for _, m := range msgs {
		data := m.Data
		switch m.Header.Get(partHeader) {
		case wholeChunk:
		case firstPart:
			first = data
			continue
		case lastPart:
			if first == nil {
				continue
			}
			data = slices.Concat(first, data)
		default:
			return nil, errors.New("queue: an output message says not which part it is")
		}
		seq, err := sequenceOf(m)
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, Chunk{Seq: seq, Data: data, Attempt: r.Attempt, Run: r.Run})
		first = nil
	}
	return chunks, nil
}
