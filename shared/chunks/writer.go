package chunks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// partHeader says whether a message is a whole chunk, the first part of one, the
// last, or several chunks.
const partHeader = "Flightline-Part"

// The values of partHeader.
const (
	wholeChunk = "whole"
	firstPart  = "more"
	lastPart   = "last"
	chunkLines = "lines" // one chunk a line
)

// Writer appends chunks to the output of one run, in order and each once, and waits
// for each. The zero Writer is not usable. It is for one goroutine.
type Writer struct {
	bus             *bus.Client
	stream, subject string
	// shared: other processes write to the subject too. stale: so last must be
	// looked up first.
	shared, stale bool
	last          uint64 // sequence of the run's last message; 0: it has none

	// What an outage cut off: the chunk's hash, its messages that are not known
	// to be stored, and whether the first of them may be.
	emitting [sha256.Size]byte
	unsent   []*nats.Msg
	unsure   bool
}

// NewWriter returns a writer for the run of j. shared: other processes may write
// chunks of this run.
func NewWriter(c *bus.Client, at record.Location, j *job.Job, shared bool) *Writer {
	return &Writer{bus: c, stream: streams.Output(at.Partition), subject: subjectOf(at, j), shared: shared, stale: shared}
}

func subjectOf(at record.Location, j *job.Job) string {
	return streams.OutputSubject(at.Partition, at.Endpoint, j.ID, j.Attempt, j.Run)
}

// Encoded is a chunk as it is stored: checked, on one line, and split.
type Encoded struct {
	pieces [][]byte
	sum    [sha256.Size]byte // of the whole
}

// Encode checks a chunk, JSON. One over job.MaxChunk is split at character
// boundaries if it is a string or its output is; for any other it returns
// ErrTooLarge.
func Encode(chunk json.RawMessage) (Encoded, error) {
	data, err := job.CompactJSON(chunk)
	if err != nil || len(data) == 0 {
		return Encoded{}, err
	}
	pieces, err := split(data, job.MaxChunk)
	return Encoded{pieces, sha256.Sum256(data)}, err
}

// Emit appends a chunk, which is kept until streams.Margin after until. After
// bus.ErrUnavailable the chunk may be stored: Emit the same chunk again, or go on
// with the next one.
func (w *Writer) Emit(ctx context.Context, c Encoded, until time.Time) error {
	// A chunk that an outage cut off is finished first. If it is this one, that
	// is all.
	same := len(w.unsent) > 0 && c.sum == w.emitting
	if err := w.flush(ctx); err != nil || same {
		return err
	}
	w.emitting = c.sum
	for _, piece := range c.pieces {
		w.unsent = append(w.unsent, w.parts(piece, until)...)
	}
	return w.flush(ctx)
}

// Emitted reports whether the run has emitted anything. It returns
// bus.ErrUnavailable.
func (w *Writer) Emitted(ctx context.Context) (bool, error) {
	err := w.catchUp(ctx)
	return w.last > 0, err
}

// pack adds the message of several chunks, or the messages of one, to what flush
// stores.
func (w *Writer) pack(pieces []piece) {
	if len(pieces) == 1 {
		w.unsent = append(w.unsent, w.parts(pieces[0].data, pieces[0].until)...)
		return
	}
	lines, until := make([][]byte, len(pieces)), pieces[0].until
	for i, p := range pieces {
		lines[i], until = p.data, job.Later(until, p.until)
	}
	w.unsent = append(w.unsent, w.message(chunkLines, bytes.Join(lines, newline), until))
}

var newline = []byte("\n")

// parts are the messages of one chunk, at most two. Only this run writes to the
// subject.
func (w *Writer) parts(data []byte, until time.Time) []*nats.Msg {
	if len(data) <= record.PartSize {
		return []*nats.Msg{w.message(wholeChunk, data, until)}
	}
	return []*nats.Msg{
		w.message(firstPart, data[:record.PartSize], until),
		w.message(lastPart, data[record.PartSize:], until),
	}
}

func (w *Writer) message(part string, data []byte, until time.Time) *nats.Msg {
	m := &nats.Msg{Subject: w.subject, Data: data, Header: nats.Header{}}
	m.Header.Set(partHeader, part)
	m.Header.Set(bus.TokenHeader, nuid.Next())
	m.Header.Set(jetstream.MsgTTLHeader, bus.MessageTTL(w.bus.Now(), until.Add(streams.Margin)))
	return m
}

// flush stores what is unsent, in order.
func (w *Writer) flush(ctx context.Context) error {
	for len(w.unsent) > 0 {
		m := w.unsent[0]
		if err := w.catchUp(ctx); err != nil {
			return err
		}
		// Where no other process writes, a write in flight is an earlier try of this
		// chunk, or a late one of the chunk before: it is waited for.
		sure := w.shared && !w.unsure
		seq, err := w.bus.Republish(ctx, w.stream, m, w.last, sure)
		if w.shared && errors.Is(err, bus.ErrConflict) {
			w.stale, w.unsure = true, false
			continue // another process emitted a chunk of this run
		}
		if err != nil {
			w.unsure = true
			return fmt.Errorf("emit a chunk to %s: %w", w.subject, err)
		}
		w.last, w.unsure, w.unsent = seq, false, w.unsent[1:]
	}
	return nil
}

// catchUp finds where the run's output ends, if other processes emit too.
func (w *Writer) catchUp(ctx context.Context) error {
	if !w.stale {
		return nil
	}
	last, err := w.bus.LastSequence(ctx, w.stream, w.subject)
	if err != nil {
		return err
	}
	w.last, w.stale = last, false
	return nil
}

// assemble joins the parts of chunks of one run. A chunk whose last part is
// missing is left for later, and one whose first part is missing was asked for
// from its middle.
func assemble(msgs []*nats.Msg, j *job.Job) ([]Chunk, error) {
	var chunks []Chunk
	var first []byte
	for _, m := range msgs {
		lines := [][]byte{m.Data}
		switch m.Header.Get(partHeader) {
		case wholeChunk:
		case chunkLines:
			lines = bytes.Split(m.Data, newline)
		case firstPart:
			first = m.Data
			continue
		case lastPart:
			if first == nil {
				continue
			}
			lines[0] = slices.Concat(first, m.Data)
		default:
			return nil, fmt.Errorf("chunks: %s: unknown %s %q", m.Subject, partHeader, m.Header.Get(partHeader))
		}
		for i, data := range lines {
			chunks = append(chunks, Chunk{Seq: cursorOf(bus.Sequence(m), i, len(lines)), Data: data, Attempt: j.Attempt, Run: j.Run})
		}
		first = nil
	}
	return chunks, nil
}
