package queue

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// partHeader marks a message that holds a part of a chunk: "more" follows, or
// it is the "last".
const partHeader = "Flightline-Part"

// Chunk is one streamed output of a run, verbatim.
type Chunk struct {
	// Seq is its place in the stream: pass it as after to read on from there.
	Seq uint64
	// Data is the chunk, JSON.
	Data json.RawMessage
	// Attempt and Run tell which run emitted it.
	Attempt, Run int
}

// Emit appends a chunk, JSON, to the run's output. A string over job.MaxChunk
// is split at a character boundary into several chunks; for any other value
// over it Emit returns ErrChunkTooLarge. It returns ErrLost once the run no
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
		m.Header.Set(partHeader, "last")
		if end < len(data) {
			m.Header.Set(partHeader, "more")
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
		seq, err := l.t.q.publishAgain(ctx, streams.Output(l.t.at.partition), m, m.Header.Get(tokenHeader), l.chunk, !l.unsure)
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

// split cuts a JSON string that is too large into several.
func split(data []byte) ([][]byte, error) {
	if len(data) <= job.MaxChunk {
		return [][]byte{data}, nil
	}
	var text string
	if data[0] != '"' || json.Unmarshal(data, &text) != nil {
		return nil, ErrChunkTooLarge
	}
	var pieces [][]byte
	const step = job.MaxChunk / 8 // a byte may need six in JSON
	for len(text) > 0 {
		end := min(step, len(text))
		for end < len(text) && !utf8.RuneStart(text[end]) {
			end--
		}
		piece, err := json.Marshal(text[:end])
		if err != nil {
			return nil, fmt.Errorf("split a chunk: %w", err)
		}
		pieces = append(pieces, piece)
		text = text[end:]
	}
	return pieces, nil
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

// assemble joins parts; a chunk whose last part is missing is left for later.
func assemble(msgs []*nats.Msg, r *record) ([]Chunk, error) {
	var chunks []Chunk
	var data []byte
	for _, m := range msgs {
		data = append(data, m.Data...)
		switch m.Header.Get(partHeader) {
		case "more":
			continue
		case "last":
		default:
			return nil, errors.New("queue: an output message says not which part it is")
		}
		seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read chunk of job %s: %w", r.ID, err)
		}
		chunks = append(chunks, Chunk{Seq: seq, Data: data, Attempt: r.Attempt, Run: r.Run})
		data = nil
	}
	return chunks, nil
}
