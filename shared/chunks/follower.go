package chunks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/wakeup"
	"flightline/streams"
)

const (
	// pollInterval is how often a job is read that nothing was heard of: the
	// server does not say that a job expired, and core NATS may lose a message.
	pollInterval = 5 * time.Second
	// retryDelay is the pause after a read that JetStream did not answer.
	retryDelay = 250 * time.Millisecond
	// minReadInterval is the least time from a read that brought chunks to the
	// next: those that come faster are read together. The first need not wait.
	minReadInterval = 2 * time.Millisecond
	// batchBytes bounds one read of chunks. It has room for two of the largest.
	batchBytes = 2 * job.MaxChunk
	// minBatch is how many messages a read must be able to bring: a chunk has at
	// most two.
	minBatch = 2
)

// Jobs reads where a job stands; *queue.Queue is one.
type Jobs interface {
	// Current returns the record of the job's latest attempt; the end of one is on the
	// disk. It returns job.ErrNotFound and bus.ErrUnavailable.
	Current(ctx context.Context, e endpoint.Endpoint, id job.ID) (*record.Record, error)
	Bus() *bus.Client
}

// Follower reads what a job emits, as it comes. It costs two subscriptions, no
// consumer, and a poll every 5 s. It reads the chunks of the latest run of the
// latest attempt: after a worker was lost, those of the run that took over
// follow. It is for one goroutine.
type Follower struct {
	jobs  Jobs
	bus   *bus.Client
	e     endpoint.Endpoint
	id    job.ID
	subs  []*nats.Subscription
	woken wakeup.Signal

	rec    *record.Record // as last read; nil before the first look
	looked time.Time      // when the last look began
	upTo   uint64         // the end of all that it found; 0: it failed, or there was more
	flows  bool           // it brought chunks
	// last is the end of the run's chunks, once rec is terminal and it is known.
	last  uint64
	ended bool

	mu    sync.Mutex
	heard struct { // the newest chunk that the server announced
		subject string
		seq     uint64
	}
}

// Follow begins to follow a job, which need not exist. Close it. It returns
// job.ErrNotFound for what cannot be the id of a job, and bus.ErrUnavailable.
func Follow(jobs Jobs, e endpoint.Endpoint, id job.ID) (*Follower, error) {
	if !id.Valid() {
		return nil, job.ErrNotFound
	}
	f := &Follower{jobs: jobs, bus: jobs.Bus(), e: e, id: id, woken: wakeup.New()}
	for subject, note := range map[string]nats.MsgHandler{
		streams.Emitted(e.Partition, e.ID, id): f.noteEmitted,
		streams.Moved(e.ID, id):                func(*nats.Msg) { f.woken.Send() },
	} {
		sub, err := f.bus.Conn().Subscribe(subject, note)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("follow job %s: %w: %w", id, bus.ErrUnavailable, err)
		}
		f.subs = append(f.subs, sub)
	}
	return f, nil
}

// Close ends the following.
func (f *Follower) Close() {
	for _, sub := range f.subs {
		_ = sub.Unsubscribe()
	}
}

// noteEmitted notes how far the run has come, which a replica that answers a read may
// not know yet.
func (f *Follower) noteEmitted(m *nats.Msg) {
	f.mu.Lock()
	f.heard.subject, f.heard.seq = bus.SubjectOf(m), bus.Sequence(m)
	f.mu.Unlock()
	f.woken.Send()
}

// Read returns what the job has emitted after the sequence after (0: from the
// beginning), at most most messages of it, and the job as it stands; its Output
// only if that is short. more says of a terminal job that there are further
// chunks, so that readers do not see its end yet. It returns job.ErrNotFound,
// bus.ErrUnavailable, or ctx.Err().
func (f *Follower) Read(ctx context.Context, after uint64, most int) (chunks []Chunk, j *job.Job, more bool, err error) {
	within, cancel := bus.Bounded(ctx)
	defer cancel()
	select {
	case <-f.woken: // what comes from now on wakes again
	default:
	}
	f.looked, f.upTo = time.Now(), 0
	chunks, more, err = f.look(within, after, most)
	f.flows = len(chunks) > 0
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if within.Err() != nil {
			err = fmt.Errorf("follow job %s: %w: %w", f.id, bus.ErrUnavailable, err)
		}
		return nil, nil, false, err
	}
	return chunks, f.job(), more, nil
}

// Next is Read that waits until there are chunks or the job is terminal. At the
// end of ctx it returns no chunks and the job as it last saw it. It sits out an
// outage of JetStream, except before it has seen the job at all: then, and only
// then, it returns bus.ErrUnavailable or ctx.Err().
func (f *Follower) Next(ctx context.Context, after uint64, most int) (chunks []Chunk, j *job.Job, more bool, err error) {
	if f.upTo == after && after > 0 && !f.rec.Status.Terminal() && !f.wait(ctx, f.untilPoll()) {
		return nil, f.job(), false, nil
	}
	for {
		pause := retryDelay
		chunks, j, more, err = f.Read(ctx, after, most)
		switch {
		case err == nil && (len(chunks) > 0 || j.Status.Terminal()):
			return chunks, j, more, nil
		case err == nil:
			pause = f.untilPoll()
		case f.rec == nil:
			return nil, nil, false, err
		case !errors.Is(err, bus.ErrUnavailable) && ctx.Err() == nil:
			return nil, nil, false, err
		}
		if !f.wait(ctx, pause) {
			return nil, f.job(), false, nil
		}
	}
}

// untilPoll is the pause after a read that found the job: the job may expire, which
// sends no message. After a read that failed it would be none, once that is over.
func (f *Follower) untilPoll() time.Duration {
	return min(pollInterval, f.bus.Until(f.rec.GoneAt()))
}

// wait returns true when there may be something that the last look did not
// find: something was heard, or the pause is over. It returns false when ctx has ended.
func (f *Follower) wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-f.woken:
		if !f.flows {
			break
		}
		timer.Reset(minReadInterval - time.Since(f.looked))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	case <-timer.C:
	}
	return ctx.Err() == nil
}

func (f *Follower) job() *job.Job {
	j := f.rec.Job
	return &j
}

// batch is what one read brought.
type batch struct {
	chunks []Chunk
	// upTo is the last sequence that was looked at; half a chunk counts.
	upTo uint64
	// all says that no more was there.
	all bool
}

// look finds what there is behind after.
func (f *Follower) look(ctx context.Context, after uint64, most int) (chunks []Chunk, more bool, err error) {
	seq, known := splitCursor(after)
	for {
		read, sure, err := f.consistent(ctx, seq, most)
		read.chunks = skip(read.chunks, seq+1, known)
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

// skip leaves out the chunks of the message seq that were read before.
func skip(chunks []Chunk, seq uint64, known int) []Chunk {
	for len(chunks) > 0 {
		of, read := splitCursor(chunks[0].Seq)
		if read == 0 || read > known || of+1 != seq {
			break
		}
		chunks = chunks[1:]
	}
	return chunks
}

// consistent reads chunks first and the record after them. If the run is still
// the one whose chunks they are (sure), no other run had emitted anything when
// they were read, so that nothing of it is before the last of them.
func (f *Follower) consistent(ctx context.Context, after uint64, most int) (read batch, sure bool, err error) {
	if f.rec != nil {
		if read, err = f.read(ctx, after, most); err != nil {
			return batch{}, false, err
		}
	}
	now, err := f.jobs.Current(ctx, f.e, f.id)
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
func (f *Follower) subject(r *record.Record) string {
	if r.Run == 0 || r.Status == job.InQueue {
		return ""
	}
	return subjectOf(record.LocationOf(f.e), &r.Job)
}

// end finds out, once, where the chunks of a terminal attempt end.
func (f *Follower) end(ctx context.Context) error {
	if f.ended {
		return nil
	}
	if subject := f.subject(f.rec); subject != "" {
		last, err := f.bus.LastSequence(ctx, streams.Output(f.e.Partition), subject)
		if err != nil {
			return err
		}
		f.last = last
	}
	f.ended = true
	return nil
}

// read reads chunks of the record's run, from any replica; from the leader if
// that replica lacks what must be there.
func (f *Follower) read(ctx context.Context, after uint64, most int) (batch, error) {
	subject, stream := f.subject(f.rec), streams.Output(f.e.Partition)
	if subject == "" {
		return batch{upTo: after}, nil
	}
	server := f.bus.Conn().ConnectedServerId()
	msgs, err := f.bus.BatchGet(ctx, stream, bus.Batch{
		From: after + 1, Filter: subject, Most: max(most, minBatch), MaxBytes: batchBytes,
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
	return b, f.bus.WaitDurable(ctx, stream, server) // readers must not see a sequence that a power loss takes back
}

// there is the last sequence of the run that is known to have been stored.
func (f *Follower) there(subject string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heard.subject != subject {
		return f.last
	}
	return max(f.last, f.heard.seq)
}

// readLeader reads the messages of one chunk, or the message of several.
func (f *Follower) readLeader(ctx context.Context, stream, subject string, after uint64) ([]*nats.Msg, error) {
	var msgs []*nats.Msg
	for {
		m, err := f.bus.LeaderNext(ctx, stream, subject, after+1)
		if errors.Is(err, bus.ErrNoMessage) {
			return msgs, nil
		}
		if err != nil {
			return nil, err
		}
		after = m.Seq
		msgs = append(msgs, m.Msg())
		switch part := m.Header.Get(partHeader); {
		case part == wholeChunk, part == chunkLines, part == lastPart && len(msgs) > 1:
			return msgs, nil
		}
	}
}

func batchOf(msgs []*nats.Msg, after uint64, r *record.Record) (batch, error) {
	b := batch{upTo: after, all: true}
	var err error
	if b.chunks, err = assemble(msgs, &r.Job); err == nil && len(msgs) > 0 {
		last := msgs[len(msgs)-1]
		b.upTo = bus.Sequence(last)
		b.all = last.Header.Get(bus.PendingHeader) == "0"
	}
	return b, err
}
