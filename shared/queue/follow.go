package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

const (
	// lookAgain is the pause after a look that JetStream did not answer.
	lookAgain = 250 * time.Millisecond
	// calm is the least time from a look that brought chunks to the next: those
	// that come faster are read together. The first of them need not wait.
	calm = 2 * time.Millisecond
)

// Follow reads what a job emits, as it comes. It costs two subscriptions, no
// consumer, and polls only as slowly as Watch does. It reads the chunks of the
// latest run of the latest attempt: after a worker was lost, those of the run
// that took over follow. It is for one goroutine.
type Follow struct {
	q     *Queue
	at    place
	id    job.ID
	subs  []*nats.Subscription
	woken chan struct{}

	rec    *record   // as last read; nil before the first look
	looked time.Time // when the last look began
	upTo   uint64    // the end of all that it found; 0: it failed, or there was more
	flows  bool      // it brought chunks
	// last is the end of the run's chunks, once rec is terminal and it is known.
	last  uint64
	ended bool

	mu    sync.Mutex
	heard struct { // the newest chunk that the server told of
		subject string
		seq     uint64
	}
}

// Follow begins to follow a job, which need not exist. Close it. It returns
// job.ErrNotFound for what cannot be the id of a job, and ErrUnavailable.
func (q *Queue) Follow(e endpoint.Endpoint, id job.ID) (*Follow, error) {
	if !id.Valid() {
		return nil, job.ErrNotFound
	}
	f := &Follow{q: q, at: placeOf(e), id: id, woken: make(chan struct{}, 1)}
	for subject, hear := range map[string]nats.MsgHandler{
		streams.Emitted(f.at.partition, f.at.endpoint, id): f.hear,
		streams.Moved(f.at.endpoint, id):                   func(*nats.Msg) { f.wake() },
	} {
		sub, err := q.nc.Subscribe(subject, hear)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("follow job %s: %w: %w", id, ErrUnavailable, err)
		}
		f.subs = append(f.subs, sub)
	}
	return f, nil
}

// Close ends the following.
func (f *Follow) Close() {
	for _, sub := range f.subs {
		_ = sub.Unsubscribe()
	}
}

func (f *Follow) wake() {
	select {
	case f.woken <- struct{}{}:
	default:
	}
}

// hear notes how far the run has come, which a replica that answers a read may
// not know yet.
func (f *Follow) hear(m *nats.Msg) {
	if seq, err := sequenceOf(m); err == nil {
		f.mu.Lock()
		f.heard.subject, f.heard.seq = m.Header.Get(jetstream.SubjectHeader), seq
		f.mu.Unlock()
	}
	f.wake()
}

// Look returns what the job has emitted after the sequence after (0: from the
// beginning), at most most messages of it, and the job as it stands; its Output
// only if that is short. more says of a terminal job that there are further
// chunks, so that its end is not to be told yet. It returns job.ErrNotFound,
// ErrUnavailable, or ctx.Err().
func (f *Follow) Look(ctx context.Context, after uint64, most int) (chunks []Chunk, j *job.Job, more bool, err error) {
	within, cancel := bounded(ctx)
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
			err = fmt.Errorf("follow job %s: %w: %w", f.id, ErrUnavailable, err)
		}
		return nil, nil, false, err
	}
	return chunks, f.job(), more, nil
}

// Next is Look that waits until there are chunks or the job is terminal. At the
// end of ctx it returns no chunks and the job as it last saw it. It sits out an
// outage of JetStream, except before it has seen the job at all: then, and only
// then, it returns ErrUnavailable or ctx.Err().
func (f *Follow) Next(ctx context.Context, after uint64, most int) (chunks []Chunk, j *job.Job, more bool, err error) {
	if f.upTo == after && after > 0 && !f.rec.Status.Terminal() && !f.wait(ctx, pollEvery) {
		return nil, f.job(), false, nil
	}
	for {
		pause := pollEvery
		chunks, j, more, err = f.Look(ctx, after, most)
		switch {
		case err == nil && (len(chunks) > 0 || j.Status.Terminal()):
			return chunks, j, more, nil
		case err == nil:
		case f.rec == nil:
			return nil, nil, false, err
		case errors.Is(err, ErrUnavailable):
			pause = lookAgain
		case ctx.Err() == nil:
			return nil, nil, false, err
		}
		if !f.wait(ctx, pause) {
			return nil, f.job(), false, nil
		}
	}
}

// wait returns true when there may be something that the last look did not
// find: something was heard, the job may have expired, which nobody tells, or
// the pause is over. It returns false when ctx has ended.
func (f *Follow) wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(min(pause, f.q.Until(f.rec.GoneAt())))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-f.woken:
		if !f.flows {
			break
		}
		timer.Reset(calm - time.Since(f.looked))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	case <-timer.C:
	}
	return ctx.Err() == nil
}

func (f *Follow) job() *job.Job {
	j := f.rec.Job
	return &j
}
