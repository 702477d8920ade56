package chunks

import (
	"context"
	"time"

	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// PollInterval is how often a follower reads without being told to.
const PollInterval = pollInterval

// RetryDelay is the pause after a read that JetStream did not answer.
const RetryDelay = retryDelay

// Expire makes the job, as it was last read, one whose ttl is over.
func (f *Follower) Expire() { f.rec.Expires = f.bus.Now() }

// EmitFirstPart stores the first part only of a chunk of two.
func (w *Writer) EmitFirstPart(ctx context.Context, data []byte) error {
	w.unsent = w.parts(data, w.bus.Now().Add(time.Hour))[:1]
	return w.flush(ctx)
}

// ReadLeader reads one chunk as a follower does that met a replica that lags.
func (f *Follower) ReadLeader(ctx context.Context, after uint64) ([]Chunk, error) {
	msgs, err := f.readLeader(ctx, streams.Output(f.e.Partition), f.subject(f.rec), after)
	if err != nil {
		return nil, err
	}
	b, err := batchOf(msgs, after, f.rec)
	return b.chunks, err
}

// ReadAfterHearingOf reads after the server has told of the sequence heard.
func (f *Follower) ReadAfterHearingOf(ctx context.Context, after, heard uint64) (upTo uint64, n int, err error) {
	f.heard.subject, f.heard.seq = f.subject(f.rec), heard
	b, err := f.read(ctx, after, 10)
	return b.upTo, len(b.chunks), err
}

// WaitsAfterRead reports whether a follower that was woken reads before ctx ends,
// though its last read is to be followed by a pause of an hour if it brought
// chunks.
func (f *Follower) WaitsAfterRead(ctx context.Context, brought bool) bool {
	f.rec = &record.Record{Job: job.Job{Expires: time.Now().Add(time.Hour)}}
	f.looked = time.Now().Add(time.Hour)
	f.flows = brought
	f.woken.Send()
	return f.wait(ctx, time.Hour)
}

// The bounds of a Window.
const (
	MaxWindow      = maxWindow
	MaxWindowBytes = maxWindowBytes
)
