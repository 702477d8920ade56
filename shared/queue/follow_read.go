package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/streams"
)

// pendingHeader says in an answer to a batch get how many messages follow.
const pendingHeader = "Nats-Num-Pending"

const (
	// batchBytes bounds one read of chunks. It has room for two of the largest.
	batchBytes = 2 * job.MaxChunk
	// batchLeast is how many messages a read must be able to bring: a chunk has
	// at most two.
	batchLeast = 2
)

// batch is what one read brought.
type batch struct {
	chunks []Chunk
	// upTo is the last sequence that was looked at; half a chunk counts.
	upTo uint64
	// all says that no more was there.
	all bool
}

// look finds what there is behind after.
func (f *Follow) look(ctx context.Context, after uint64, most int) (chunks []Chunk, more bool, err error) {
	for {
		read, sure, err := f.consistent(ctx, after, most)
		switch {
		case err != nil:
			return nil, false, err
		case !sure:
			continue
		case !f.rec.Status.Terminal():
			if read.all {
				f.upTo = read.upTo
			}
			return read.chunks, false, nil
		}
		if err := f.end(ctx); err != nil {
			return nil, false, err
		}
		more = read.upTo < f.last
		if len(read.chunks) > 0 || !more {
			return read.chunks, more, nil
		}
	}
}

// consistent reads chunks first and the record after them. If the run is still
// the one whose chunks they are (sure), no other run had emitted anything when
// they were read, so that nothing of it lies before the last of them.
func (f *Follow) consistent(ctx context.Context, after uint64, most int) (read batch, sure bool, err error) {
	if f.rec != nil {
		if read, err = f.read(ctx, after, most); err != nil {
			return batch{}, false, err
		}
	}
	now, err := f.q.latest(ctx, f.at, f.id)
	if err != nil {
		return batch{}, false, err
	}
	sure = f.rec != nil && f.subject(f.rec) == f.subject(now)
	f.rec = now
	if !sure {
		f.last, f.ended = 0, false
	}
	return read, sure, nil
}

// subject is where the chunks of the record's run lie; "" if there are none. An
// attempt that waits has none to show: what a run left that was given back is
// no news.
func (f *Follow) subject(r *record) string {
	if r.Run == 0 || r.Status == job.InQueue {
		return ""
	}
	return streams.OutputSubject(f.at.partition, f.at.endpoint, f.id, r.Attempt, r.Run)
}

// end finds out, once, where the chunks of a terminal attempt end, and waits
// until its end is on the disk.
func (f *Follow) end(ctx context.Context) error {
	if f.ended {
		return nil
	}
	if err := f.q.seen(ctx, f.at, f.rec); err != nil {
		return err
	}
	if subject := f.subject(f.rec); subject != "" {
		m, err := f.q.leaderLast(ctx, streams.Output(f.at.partition), subject)
		if err != nil && !errors.Is(err, errNoMessage) {
			return err
		}
		if m != nil {
			f.last = m.seq
		}
	}
	f.ended = true
	return nil
}

// read reads chunks of the record's run, from any replica; from the leader if
// that replica lacks what must be there.
func (f *Follow) read(ctx context.Context, after uint64, most int) (batch, error) {
	subject, stream := f.subject(f.rec), streams.Output(f.at.partition)
	if subject == "" {
		return batch{upTo: after}, nil
	}
	server := f.q.nc.ConnectedServerId()
	msgs, err := untilAnswered(ctx, func() ([]*nats.Msg, error) {
		got, err := bus.BatchGet(ctx, f.q.nc, streams.DirectGet(stream), bus.Batch{
			From: after + 1, Filter: subject, Most: max(most, batchLeast), MaxBytes: batchBytes,
		})
		if errors.Is(err, bus.ErrNoAnswer) {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return got, err
	})
	if err != nil {
		return batch{}, err
	}
	b, err := batchOf(msgs, after, f.rec)
	there := f.there(subject)
	b.all = b.all && there <= b.upTo
	if err == nil && len(b.chunks) == 0 && there > b.upTo {
		if msgs, err = f.readLeader(ctx, stream, subject, after); err != nil {
			return batch{}, err
		}
		if b, err = batchOf(msgs, after, f.rec); len(b.chunks) == 0 {
			b.upTo = max(b.upTo, there) // it was there, and is gone with its age
		}
	}
	if err != nil || len(b.chunks) == 0 {
		return b, err
	}
	return b, f.q.durable(ctx, stream, server) // a sequence that a power loss takes back must not be told
}

// there is the last sequence of the run that is known to have been stored.
func (f *Follow) there(subject string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heard.subject != subject {
		return f.last
	}
	return max(f.last, f.heard.seq)
}

// readLeader reads the messages of one chunk.
func (f *Follow) readLeader(ctx context.Context, stream, subject string, after uint64) ([]*nats.Msg, error) {
	var msgs []*nats.Msg
	for {
		body := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q}`, after+1, subject)
		m, err := untilAnswered(ctx, func() (*stored, error) { return f.q.leaderGet(ctx, stream, body) })
		if errors.Is(err, errNoMessage) {
			return msgs, nil
		}
		if err != nil {
			return nil, err
		}
		after = m.seq
		m.header.Set(jetstream.SequenceHeader, strconv.FormatUint(m.seq, 10))
		msgs = append(msgs, &nats.Msg{Subject: subject, Header: m.header, Data: m.data})
		if part := m.header.Get(partHeader); part == wholeChunk || part == lastPart && len(msgs) > 1 {
			return msgs, nil
		}
	}
}

func batchOf(msgs []*nats.Msg, after uint64, r *record) (batch, error) {
	b := batch{upTo: after, all: true}
	var err error
	if b.chunks, err = assemble(msgs, r); err == nil && len(msgs) > 0 {
		last := msgs[len(msgs)-1]
		b.upTo, err = sequenceOf(last)
		b.all = last.Header.Get(pendingHeader) == "0"
	}
	return b, err
}

// sequenceOf is the sequence of a message that was read, or repeated.
func sequenceOf(m *nats.Msg) (uint64, error) {
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read sequence of %s: %w", m.Subject, err)
	}
	return seq, nil
}
