package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/streams"
)

// Fact is what the headers of the newest write of a record tell: enough for
// the events and counts of its attempt.
type Fact struct {
	// Job has its Output and Error only if they are short.
	Job job.Job
	// Partition is where the record lies, Seq the sequence of the write in that
	// partition's stream.
	Partition int
	Seq       uint64
	// Written is the server's time of the write. One at or after Job.Expires
	// was never seen by anybody.
	Written time.Time
	// Starts tells when runs 1 to Job.Run of the attempt began. The zero time
	// stands for a run so long ago that the record has forgotten it.
	Starts []time.Time
	// Touch: the write moved no status, and counts nothing.
	Touch bool

	beside bool
}

// Beside reports whether a payload lies beside the record, which Announce
// would have to copy.
func (f Fact) Beside() bool { return f.beside }

// factsPause is how long Facts waits before it asks again after a failure.
const factsPause = 500 * time.Millisecond

// Facts calls each for the newest write of every record of partition p, in the
// order of writing, after the sequence after, and for further writes as they
// come. Of several writes of one record it may skip all but the newest. It
// sits out an outage; it ends with nil when ctx ends, and with the error that
// each returned.
func (q *Queue) Facts(ctx context.Context, p int, after uint64, each func(Fact) error) error {
	var refused error
	for ctx.Err() == nil {
		err := q.facts(ctx, p, after, func(f Fact) error {
			refused = each(f)
			after = f.Seq
			return refused
		})
		if refused != nil {
			return refused
		}
		if err != nil && ctx.Err() == nil {
			q.log.WarnContext(ctx, "facts are not read, trying again", "partition", p, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(factsPause):
		}
	}
	return nil
}

func (q *Queue) facts(ctx context.Context, p int, after uint64, each func(Fact) error) error {
	consumer, err := q.js.OrderedConsumer(ctx, streams.Records(p), jetstream.OrderedConsumerConfig{
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
		f, err := factOf(p, m)
		if err != nil {
			q.log.ErrorContext(ctx, "record skipped", "error", err)
			continue
		}
		if err := each(f); err != nil {
			return err
		}
	}
}

func factOf(p int, m jetstream.Msg) (Fact, error) {
	meta, err := m.Metadata()
	if err != nil {
		return Fact{}, fmt.Errorf("read %s: %w", m.Subject(), err)
	}
	r, err := headOf(p, m.Subject(), m.Headers(), meta.Sequence.Stream)
	if err != nil {
		return Fact{}, err
	}
	return Fact{Job: r.Job, Partition: p, Seq: r.seq, Written: meta.Timestamp, Starts: r.starts(), Touch: m.Headers().Get(changeHeader) == touch, beside: r.beside}, nil
}

// headOf reads what the header of a stored record says.
func headOf(p int, subject string, header nats.Header, seq uint64) (*record, error) {
	ep, id, _, err := streams.ParseRecord(subject)
	if err != nil {
		return nil, err
	}
	w, err := parseWire(header.Get(metaHeader))
	if err != nil {
		return nil, fmt.Errorf("decode job %s: %w", id, err)
	}
	return w.record(place{ep, p}, id, seq), nil
}

// starts are those of all runs, the first ones zero if they are forgotten.
func (r *record) starts() []time.Time {
	starts := make([]time.Time, r.Run)
	known := append(slices.Clone(r.begun), r.Started)
	for i := 1; i <= min(len(known), r.Run); i++ {
		starts[r.Run-i] = known[len(known)-i]
	}
	return starts
}

// LastFact is the sequence of the last write of partition p; what lies between
// it and the Fact at hand is the lag. It returns ErrUnavailable.
func (q *Queue) LastFact(ctx context.Context, p int) (uint64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	stream, err := q.js.Stream(ctx, streams.Records(p))
	if err != nil {
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return 0, ctx.Err()
		}
		return 0, foreign(err)
	}
	return stream.CachedInfo().State.LastSeq, nil
}

// OldestFact is when the oldest of the newest writes of the records of
// partition p after the sequence after was written, in server time; the zero
// time if there is none. It returns ErrUnavailable.
func (q *Queue) OldestFact(ctx context.Context, p int, after uint64) (time.Time, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	m, err := q.leaderNext(ctx, streams.Records(p), streams.RecordFilter(p), after+1)
	if errors.Is(err, errNoMessage) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339Nano, m.at)
	if err != nil {
		return time.Time{}, fmt.Errorf("read %s: %w", m.subject, err)
	}
	return at, nil
}
