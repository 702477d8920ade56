package queue

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

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
	"flightline/streams"
)

// Changes follows what is written to the records of all jobs, and removes the records
// whose retention is over. The recorder uses it.
type Changes struct{ q *Queue }

// RecordChange is what the headers of the newest write of a record have: enough for
// the events and counts of its attempt.
type RecordChange struct {
	// Job has its Output only if it is short, and of a long Error the cause.
	Job job.Job
	// Partition is that of the record, Seq the sequence of the write in that
	// partition's stream.
	Partition int
	Seq       uint64
	// Written is the server's time of the write. One at or after Job.Expires
	// was never seen by anybody.
	Written time.Time
	// Starts are the starts of runs 1 to Job.Run of the attempt. The zero time
	// stands for a run so long ago that the record has forgotten it.
	Starts []time.Time
	// Touch: the write moved no status, and counts nothing. EndSeq is the sequence of
	// the write that ended the attempt before it; 0 if none did, and in records that
	// were written before docs/adr/0057.
	Touch  bool
	EndSeq uint64
	// ExternalPayload: a payload is stored beside the record, and is copied when a
	// webhook is enqueued.
	ExternalPayload bool
	// Removable: Remove has something to remove after RemovableAt.
	Removable bool
}

// changesRetryDelay is how long Follow waits before it asks again after a failure.
const changesRetryDelay = 500 * time.Millisecond

// Follow calls each for the newest write of every record of partition p, in the
// order of writing, after the sequence after, and for further writes as they
// come. Of several writes of one record it may skip all but the newest. It
// sits out an outage; it ends with nil when ctx ends, and with the error that
// each returned.
func (cs *Changes) Follow(ctx context.Context, p int, after uint64, each func(RecordChange) error) error {
	var refused error
	outage := telemetry.NewOutageLog()
	for ctx.Err() == nil {
		err := cs.read(ctx, p, after, func(c RecordChange) error {
			refused = each(c)
			after = c.Seq
			return refused
		})
		if refused != nil {
			return refused
		}
		if err != nil && ctx.Err() == nil {
			outage.Warn(ctx, cs.q.log, "records are not read, trying again", slog.Int("partition", p), slog.Any("err", err))
		}
		_ = retry.Sleep(ctx, changesRetryDelay) // the loop sees the end of ctx
	}
	return nil
}

func (cs *Changes) read(ctx context.Context, p int, after uint64, each func(RecordChange) error) error {
	consumer, err := cs.q.js.OrderedConsumer(ctx, streams.Records(p), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{streams.RecordFilter(p)}, HeadersOnly: true,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
	})
	if err != nil {
		return fmt.Errorf("read records of partition %d: %w", p, err)
	}
	writes, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read records of partition %d: %w", p, err)
	}
	defer writes.Stop()
	defer context.AfterFunc(ctx, writes.Stop)()
	for {
		m, err := writes.Next()
		if err != nil {
			return fmt.Errorf("read records of partition %d: %w", p, err)
		}
		c, err := changeOf(p, m)
		if err != nil {
			cs.q.log.ErrorContext(ctx, "record skipped", "err", err)
			continue
		}
		if err := each(c); err != nil {
			return err
		}
	}
}

func changeOf(p int, m jetstream.Msg) (RecordChange, error) {
	meta, err := m.Metadata()
	if err != nil {
		return RecordChange{}, fmt.Errorf("read %s: %w", m.Subject(), err)
	}
	r, err := headOf(p, m.Subject(), m.Headers(), meta.Sequence.Stream)
	if err != nil {
		return RecordChange{}, err
	}
	return RecordChange{Job: r.Job, Partition: p, Seq: r.Seq, Written: meta.Timestamp, Starts: runStarts(r), Touch: m.Headers().Get(record.ChangeHeader) == record.Touch, EndSeq: r.EndSeq, ExternalPayload: r.ExternalPayload, Removable: removable(r)}, nil
}

// removable reports whether an attempt leaves something that the server does not remove
// with it: it is terminal, or its ttl was made shorter and its queue message stays.
func removable(r *record.Record) bool {
	return r.Status.Terminal() || r.Expires.Before(r.QueueExpires)
}

// headOf reads what the header of a stored record says.
func headOf(p int, subject string, header nats.Header, seq uint64) (*record.Record, error) {
	ep, id, _, err := streams.ParseRecord(subject)
	if err != nil {
		return nil, err
	}
	r, _, err := record.ParseHeader(record.Location{Endpoint: ep, Partition: p}, id, header, seq)
	return r, err
}

// runStarts are those of all runs, the first ones zero if they are forgotten.
func runStarts(r *record.Record) []time.Time {
	starts := make([]time.Time, r.Run)
	known := slices.Clone(r.StartTimes)
	if !r.Started.IsZero() { // it is zero if the last run was given back and the job cancelled
		known = append(known, r.Started)
	}
	for i := 1; i <= min(len(known), r.Run); i++ {
		starts[r.Run-i] = known[len(known)-i]
	}
	return starts
}

// Last is the sequence of the last write of partition p; what is between
// it and the RecordChange at hand is the lag. It returns bus.ErrUnavailable.
func (cs *Changes) Last(ctx context.Context, p int) (uint64, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	state, err := cs.q.bus.StreamState(ctx, streams.Records(p))
	return state.LastSeq, err
}

// Oldest is when the oldest of the newest writes of the records of
// partition p after the sequence after was written, in server time; the zero
// time without any. It returns bus.ErrUnavailable.
func (cs *Changes) Oldest(ctx context.Context, p int, after uint64) (time.Time, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	m, err := cs.q.bus.LeaderNext(ctx, streams.Records(p), streams.RecordFilter(p), after+1)
	if errors.Is(err, bus.ErrNoMessage) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return m.Time, nil
}

// removalGrace is Config.RemovalGrace if that is 0: longer than any call lasts
// that still saw the job.
const removalGrace = 10 * time.Second

// RemovableAt is when Remove may remove what a job leaves, in server time.
func (cs *Changes) RemovableAt(j *job.Job) time.Time {
	return j.GoneAt().Add(cmp.Or(cs.q.cfg.RemovalGrace, removalGrace))
}

// Remove removes the attempt whose record's newest write in partition p is
// seq, with its payloads and chunks, if it is over, its retention is, and its
// queue message is gone (docs/design/data-model.md#principles, 4). Of an attempt whose
// ttl was made shorter, and is over, it removes all but the record, which the server
// removes. The caller has made sure that the events of this attempt and those before are
// on the disk. done is false if it is too early: ask again. It may be repeated, and
// returns bus.ErrUnavailable.
func (cs *Changes) Remove(ctx context.Context, p int, seq uint64) (done bool, err error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	m, err := cs.q.bus.LeaderAt(ctx, streams.Records(p), seq)
	if errors.Is(err, bus.ErrNoMessage) {
		return true, nil // written again since, or forgotten
	}
	if err != nil {
		return false, err
	}
	r, err := headOf(p, m.Subject, m.Header, m.Seq)
	switch {
	case err != nil:
		return false, err
	case !removable(r):
		return true, nil // it ends with another write
	case cs.q.Now().Before(cs.RemovableAt(&r.Job)):
		return false, nil
	}
	x := removal{cs.q.read, record.Location{Endpoint: r.Endpoint, Partition: p}, r}
	later, waits, err := x.checkQueue(ctx)
	if err != nil || waits {
		return false, err
	}
	if !later {
		if err := x.removePayloads(ctx); err != nil {
			return false, err
		}
	}
	if !r.Status.Terminal() {
		return true, nil // without its record it would be the attempt before
	}
	kept, err := x.removeEarlier(ctx)
	if err != nil {
		return false, err
	}
	if r.RetainOnDisk || kept {
		return true, nil
	}
	return true, cs.q.bus.Remove(ctx, streams.Records(p), seq)
}

// DropLeft removes the queue message of an attempt that has ended, if it is still there: the
// process that ended it was killed in between. Such a job counts as waiting until a worker is
// handed it. It may be repeated and returns bus.ErrUnavailable.
func (cs *Changes) DropLeft(ctx context.Context, c RecordChange) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	p := &purge{q: cs.q, at: record.Location{Endpoint: c.Job.Endpoint, Partition: c.Partition}}
	_, err := cs.q.read.message(ctx, p.at, c.Job.ID)
	var r *record.Record
	if err == nil {
		r, err = cs.q.read.record(ctx, p.at, c.Job.ID, c.Job.Attempt)
	}
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		return nil
	case err != nil || !r.Status.Terminal():
		return err
	}
	return p.dropOver(ctx, r)
}

// removal removes what the finished attempt r has stored besides its record.
type removal struct {
	reader
	at record.Location
	r  *record.Record
}

// removeEarlier removes the records of earlier attempts. It runs before x.r is removed:
// without x.r the last of them would count as the job's current record. kept is true if
// one of them stays on disk until it expires (Record.RetainOnDisk), and so x.r must.
func (x removal) removeEarlier(ctx context.Context) (kept bool, err error) {
	for attempt := x.r.Attempt - 1; attempt > 0; attempt-- {
		earlier, err := x.record(ctx, x.at, x.r.ID, attempt)
		if errors.Is(err, bus.ErrNoMessage) {
			continue
		}
		if err != nil {
			return false, err
		}
		if earlier.RetainOnDisk {
			kept = true
			continue
		}
		if err := x.bus.Remove(ctx, streams.Records(x.at.Partition), earlier.Seq); err != nil {
			return false, err
		}
	}
	return kept, nil
}

// checkQueue looks for a queue message of the job. later is true if the job has a later
// attempt, which needs the payloads. waits is true if the message was one of x.r itself:
// it is being removed, and the record must stay until it is gone.
func (x removal) checkQueue(ctx context.Context) (later, waits bool, err error) {
	msg, err := x.message(ctx, x.at, x.r.ID)
	if err != nil && !errors.Is(err, bus.ErrNoMessage) {
		return false, false, err
	}
	if msg != nil && msg.Attempt <= x.r.Attempt {
		return false, true, x.bus.Remove(ctx, streams.Jobs(x.at.Endpoint), msg.QueueSeq)
	}
	if msg != nil {
		return true, false, nil
	}
	if !x.r.Status.Retryable() {
		return false, false, nil // the last attempt there can be
	}
	_, err = x.record(ctx, x.at, x.r.ID, x.r.Attempt+1)
	if errors.Is(err, bus.ErrNoMessage) {
		return false, false, nil
	}
	return err == nil, false, err
}

// removePayloads removes the payloads and chunks of all attempts of the job. Most jobs
// have none, and cost no call. A run that did not complete may have left an output that
// no record names, and the record of a job that waits does not name its input.
func (x removal) removePayloads(ctx context.Context) error {
	again := !x.r.Status.Terminal() || x.r.Attempt > 1 || x.r.Run > 1 || x.r.Run > 0 && x.r.Status != job.Completed
	if again || x.r.ExternalPayload {
		if err := x.bus.Purge(ctx, streams.Payloads(x.at.Partition), streams.AnyPayload(x.at.Partition, x.at.Endpoint, x.r.ID)); err != nil {
			return err
		}
	}
	if again || x.r.Emitted {
		return x.bus.Purge(ctx, streams.Output(x.at.Partition), streams.AnyOutput(x.at.Partition, x.at.Endpoint, x.r.ID))
	}
	return nil
}

// HasUnneededInput reports whether the attempt may have a large input that nothing needs
// any more: it has ended and cannot be retried. The caller has copied it for the webhook.
func (c RecordChange) HasUnneededInput() bool {
	return c.ExternalPayload && c.Job.Status.Terminal() && !c.Job.Status.Retryable()
}

// RemoveUnneededInput removes the input if HasUnneededInput reports true. It may be
// repeated and returns bus.ErrUnavailable.
func (cs *Changes) RemoveUnneededInput(ctx context.Context, c RecordChange) error {
	if !c.HasUnneededInput() {
		return nil
	}
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	return cs.q.bus.Purge(ctx, streams.Payloads(c.Partition), streams.AnyInput(c.Partition, c.Job.Endpoint, c.Job.ID))
}
