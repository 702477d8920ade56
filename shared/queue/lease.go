package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"flightline/shared/bus"
	"flightline/shared/chunks"
	"flightline/shared/job"
	"flightline/shared/mutation"
	"flightline/shared/record"
	"flightline/streams"
)

// Lease is a worker's hold on one run of a job: (job, attempt, run). It lasts
// while it is extended, and ends with an outcome, with Release, or with
// ErrLost. It is safe for concurrent use.
type Lease struct {
	// Job is the job as it was picked up.
	Job job.Job
	// Input is the job's input, loaded.
	Input json.RawMessage
	// S3Config is the submission's, or nil. It is a secret.
	S3Config json.RawMessage

	consumer *Consumer
	msg      *record.Record // the queue message; nil until a far lease needs it
	changed  chan struct{}
	ackTo    string // the subject that extends and ends the lease
	given    string // the server start that gave it
	// far: other processes have a part in the run (remote.go). So what a server gave is good on
	// all nodes of its cluster (sameServer), each chunk is stored before Emit returns (output,
	// not window), and end reads what only others may know (lookBack).
	far bool
	// extended is when the holder last said that it lives, in this process's
	// time. Nil while it is not this process's affair.
	extended atomic.Pointer[time.Time]

	mu   sync.Mutex
	rec  *record.Record // as this process last saw it
	seen *record.Record // the record of this run once it was found ended
	gone bool           // the run was found to hold the job no longer
	// The run's output, made when it is first needed: output if far, else window.
	output *chunks.Writer
	window *chunks.Window
}

// Changed receives a value when somebody else wrote the job's record. Call
// Extend then: it reports whether the lease is lost, and reads its limits.
func (l *Lease) Changed() <-chan struct{} { return l.changed }

func (l *Lease) signal() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Deadline is when the run times out, in server time. It moves with the server's
// clock where that is set: Until(Deadline()) is what the run has left.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec.CurrentDeadline()
}

// Expires is when the job's ttl ends it, in server time.
func (l *Lease) Expires() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec.Expires
}

// Extend is the heartbeat: call it every third of the endpoint's lease, and
// when Changed receives. It returns ErrLost once the job was cancelled, timed
// out, expired, or given to another worker: the handler should stop, its
// result is not wanted. bus.ErrUnavailable means that nothing is known; go on and
// try again.
func (l *Lease) Extend(ctx context.Context) error {
	// Before the lock: another call may hold it for as long as JetStream does
	// not answer, and the heartbeat must not wait for that. It is lost while
	// NATS is away; so are the deliveries that it prevents.
	sent := l.consumer.q.sameServer(l.given, l.far)
	if sent {
		_ = l.consumer.q.nc.Publish(l.ackTo, []byte("+WPI"))
	}
	l.touch()
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(ctx); err != nil {
		return err
	}
	if !sent && l.named(ctx) {
		_ = l.consumer.q.nc.Publish(l.ackTo, []byte("+WPI"))
	}
	if l.window != nil {
		l.window.Resume(ctx)
	}
	return l.lives(ctx)
}

func (l *Lease) touch() {
	now := time.Now()
	l.extended.Store(&now)
}

// alive reports whether the holder has extended the lease within its time, by the
// monotonic clock: a wall clock that is set forward makes no holder silent.
func (l *Lease) alive() bool {
	last := l.extended.Load()
	return last != nil && time.Since(*last) < l.consumer.e.Lease
}

// lives says in the record that the holder lives, where that is not the
// business of the queue message alone.
func (l *Lease) lives(ctx context.Context) error {
	if !l.rec.Detached && l.rec.AckTimeout == 0 {
		return nil
	}
	return l.write(ctx, job.Touch, func(n *record.Record) { n.AckTimeout = 0 })
}

// refresh reads the record and checks that the run still holds it.
func (l *Lease) refresh(ctx context.Context) error {
	r, err := l.consumer.q.read.record(ctx, l.consumer.at, l.Job.ID, l.Job.Attempt)
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		return l.lost()
	case err != nil:
		return err
	case r.Status.Terminal() && r.Run == l.Job.Run:
		l.seen = r
		return l.lost()
	case r.Status != job.InProgress || r.Run != l.Job.Run || !l.consumer.q.Now().Before(r.Expires):
		return l.lost()
	}
	l.rec = r
	return nil
}

func (l *Lease) lost() error {
	l.gone = true
	l.consumer.release(l)
	return ErrLost
}

// write moves the record while this run holds it. A conflict with a touch of
// somebody else is no loss: it reads and tries again.
func (l *Lease) write(ctx context.Context, by job.Trigger, change func(*record.Record)) error {
	for {
		r, err := l.consumer.q.move(ctx, l.consumer.at, l.rec, by, change)
		if err == nil {
			l.rec = r
			return nil
		}
		if !errors.Is(err, bus.ErrConflict) {
			return err
		}
		if err := l.refresh(ctx); err != nil {
			return err
		}
	}
}

// Progress keeps v, JSON of at most job.MaxProgress bytes, as the job's output
// until it ends. It returns ErrProgressTooLarge or ErrLost.
func (l *Lease) Progress(ctx context.Context, v json.RawMessage) error {
	if len(v) > job.MaxProgress {
		return ErrProgressTooLarge
	}
	v, err := job.CompactJSON(v)
	if err != nil {
		return err
	}
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.Status != job.InProgress {
		return l.lost()
	}
	if !l.consumer.q.Now().Before(l.rec.Expires) { // a caller may have made the ttl longer while NATS was away
		if err := l.refresh(ctx); err != nil {
			return err
		}
	}
	return l.write(ctx, job.Touch, func(n *record.Record) { n.InlineOutput, n.Output, n.AckTimeout = v, v, 0 })
}

// Emit appends a chunk to the run's output: the very element that readers of
// the job's stream will see, as {"output": …}, JSON. One over job.MaxChunk is
// split if that is possible; for any other Emit returns chunks.ErrTooLarge. It
// returns ErrLost once the run no longer holds the job as far as this process
// knows, and bus.ErrUnavailable, after which it may be repeated.
//
// Emit returns before the chunk is stored, unless other processes have a part in
// the run. The outcome is written after all chunks; a chunk that cannot be stored fails
// the run, and a later Emit returns why.
func (l *Lease) Emit(ctx context.Context, chunk json.RawMessage) error {
	encoded, err := chunks.Encode(chunk) // before the lock: heartbeats wait for it
	if err != nil {
		return err
	}
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	window, until, err := l.emit(ctx, encoded)
	if err != nil || window == nil {
		return err
	}
	err = window.Emit(ctx, encoded, until) // without the lock: it may have to wait
	if errors.Is(err, chunks.ErrSealed) {
		return ErrLost
	}
	return err
}

// emit appends a chunk of a far lease. For any other it returns where to put the
// chunk, and until when it is needed.
func (l *Lease) emit(ctx context.Context, chunk chunks.Encoded) (*chunks.Window, time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := l.rec.RemovedAfter()
	if l.rec.Status != job.InProgress || l.gone || !l.consumer.q.Now().Before(l.rec.Expires) {
		return nil, until, ErrLost
	}
	if err := l.received(ctx); err != nil {
		return nil, until, err
	}
	if l.far {
		return nil, until, l.writer().Emit(ctx, chunk, until)
	}
	if l.window == nil {
		l.window = chunks.NewWindow(chunks.NewWriter(l.consumer.q.bus, l.consumer.at, &l.Job, false))
	}
	return l.window, until, nil
}

// writer returns the writer of a far run's output.
func (l *Lease) writer() *chunks.Writer {
	if l.output == nil {
		l.output = chunks.NewWriter(l.consumer.q.bus, l.consumer.at, &l.Job, true)
	}
	return l.output
}

// Flush returns once all chunks are stored. It returns bus.ErrUnavailable, or why
// a chunk cannot be stored.
func (l *Lease) Flush(ctx context.Context) error {
	l.mu.Lock()
	window := l.window
	l.mu.Unlock()
	if window == nil {
		return nil
	}
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	return window.Flush(ctx)
}

// flushTimeout bounds the wait for the chunks in a call that ends the run. It leaves
// time to find out whether the run still holds the job.
const flushTimeout = bus.CallTimeout / 2

// notStoredText is the error of a run one of whose chunks cannot be stored.
func notStoredText(err error) string {
	return job.CutError(fmt.Sprintf("%s: %v", job.ErrTextChunkNotStored, err))
}

// sealAndFlush takes no further chunks, and returns once all are stored. It returns what
// Flush does; again says that it may be repeated.
func (l *Lease) sealAndFlush(ctx context.Context) (again bool, err error) {
	l.mu.Lock()
	if l.window != nil {
		l.window.Seal()
	}
	l.mu.Unlock()
	within, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	err = l.Flush(within)
	return errors.Is(err, bus.ErrUnavailable) || err != nil && ctx.Err() != nil, err
}

// Complete ends the run with its output, JSON or nothing; more than
// job.MaxOutput ends it as FAILED. Past the deadline it is TIMED_OUT. It
// returns the job as it stands, ErrLost if the run no longer holds it, or
// bus.ErrUnavailable, after which it may be repeated.
func (l *Lease) Complete(ctx context.Context, output json.RawMessage) (*job.Job, error) {
	out, err := job.CompactJSON(output)
	switch {
	case err != nil:
		return l.Fail(ctx, err.Error())
	case len(out) > job.MaxOutput:
		return l.Fail(ctx, fmt.Sprintf("%s: the output has %d bytes, at most %d are kept", job.ErrTextOutputTooLarge, len(out), job.MaxOutput))
	}
	return l.observed(l.end(ctx, job.Succeed, out, ""))
}

// Fail ends the run with an error text, of which job.MaxError bytes are kept.
// It returns what Complete does.
func (l *Lease) Fail(ctx context.Context, text string) (*job.Job, error) {
	return l.FailWith(ctx, text, nil)
}

// FailWith is Fail with an output beside the error, JSON or nothing. What
// Complete would refuse is left out, and the error begins with that.
func (l *Lease) FailWith(ctx context.Context, text string, output json.RawMessage) (*job.Job, error) {
	out, err := job.CompactJSON(output)
	switch {
	case err != nil:
		out, text = nil, fmt.Sprintf("(its output is left out: %v) %s", err, text)
	case len(out) > job.MaxOutput:
		out, text = nil, fmt.Sprintf("(its output is left out: it has %d bytes, at most %d are kept) %s", len(out), job.MaxOutput, text)
	}
	return l.observed(l.end(ctx, job.Fail, out, job.CutError(text)))
}

// TimeOut ends a run that is past its deadline. It returns what Complete does.
func (l *Lease) TimeOut(ctx context.Context) (*job.Job, error) {
	return l.end(ctx, job.TimeOut, nil, job.ErrTextTimedOut)
}

// end writes the outcome and only then lets the queue message go. A crash in
// between brings the message back, and its next delivery finds the record.
func (l *Lease) end(ctx context.Context, by job.Trigger, output []byte, text string) (*job.Job, error) {
	if mutation.DeleteFirst {
		l.ack(ctx)
	}
	output, ref, until, err := l.placeOutput(ctx, output) // before the lock, as sealAndFlush: heartbeats wait for it
	if err != nil {
		return nil, err
	}
	whole := ctx
	ctx, cancel := bus.Bounded(whole)
	defer cancel()
	again, notStored := l.sealAndFlush(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.Status.Terminal() { // an earlier call whose answer was lost to the caller
		j := l.rec.Job
		return &j, nil
	}
	if again {
		return nil, cmp.Or(l.refresh(ctx), notStored)
	}
	switch {
	case l.rec.Overdue(l.consumer.q.Now()):
		by, output, ref, text = job.TimeOut, nil, nil, job.ErrTextTimedOut
	case notStored != nil && by == job.Succeed:
		by, output, ref, text = job.Fail, nil, nil, notStoredText(notStored)
	}
	emitted, err := l.lookBack(ctx, by)
	if err != nil {
		return nil, err
	}
	err = l.write(ctx, by, func(n *record.Record) {
		if l.msg != nil {
			keepInput(n, l.msg)
		}
		n.InlineOutput, n.OutputRef, n.Error, n.Emitted = output, ref, text, emitted
	})
	switch {
	case errors.Is(err, ErrLost) && l.ended(by): // an earlier call wrote it and lost the answer
		if err := l.consumer.q.read.waitRecordDurable(ctx, l.consumer.at, l.seen); err != nil {
			return nil, err
		}
		l.rec = l.seen
	case err != nil:
		return nil, err
	}
	l.ack(ctx)
	l.consumer.release(l)
	l.carryOutput(whole, until)
	j := l.rec.Job
	return &j, nil
}

// placeOutput stores a large output beside the record, until a time, and returns a small one
// as it is.
func (l *Lease) placeOutput(ctx context.Context, output []byte) (inline []byte, ref *record.PayloadRef, until time.Time, err error) {
	if len(output) <= maxInlinePayload {
		return output, nil, until, nil
	}
	l.mu.Lock()
	r := *l.rec
	l.mu.Unlock()
	if r.Status.Terminal() { // an earlier call whose answer was lost to the caller
		return nil, nil, until, nil
	}
	ctx, cancel := bus.BoundedFor(ctx, ExtraTime(len(output)))
	defer cancel()
	until = r.RemovedAfter()
	ref, err = l.consumer.q.payloads.store(ctx, l.consumer.at, &r, streams.Out, output, until)
	return nil, ref, until, err
}

// ended reports whether the record that ended this run is what the holder
// itself wrote: no other process completes a run, and a process that fails it
// counts its worker as lost.
func (l *Lease) ended(by job.Trigger) bool {
	if l.seen == nil {
		return false
	}
	want, err := job.InProgress.Next(by)
	return err == nil && l.seen.Status == want && l.seen.Lost == l.Job.Lost
}

// ack lets the queue message go. It proves nothing and may be lost.
func (l *Lease) ack(ctx context.Context) {
	l.consumer.q.Reach(BeforeDelete)
	if !l.consumer.q.sameServer(l.given, l.far) {
		l.consumer.q.dropMessage(ctx, l.consumer.at, l.Job.ID, l.Job.Attempt)
		return
	}
	_ = l.consumer.q.nc.Publish(l.rec.AckSubject, []byte("+ACK"))
}

// Release ends the lease without an outcome: the job waits again, at once and
// without a lost worker. It returns ErrLost or bus.ErrUnavailable.
func (l *Lease) Release(ctx context.Context) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.Detached {
		return l.releaseDetached(ctx)
	}
	return l.giveBack(ctx, givenBack)
}

// giveBack writes that the job waits again, and then has its queue message handed out.
func (l *Lease) giveBack(ctx context.Context, change func(*record.Record)) error {
	if err := l.write(ctx, job.Release, change); err != nil {
		return err
	}
	if l.named(ctx) {
		l.consumer.q.bus.GiveBack(l.rec.AckSubject)
	}
	l.consumer.release(l)
	return nil
}

// givenBack changes what only a run has.
func givenBack(r *record.Record) {
	r.Deadline, r.AckTimeout = time.Time{}, 0
	r.InlineOutput, r.Output = nil, nil
}

// releaseDetached queues a message again for a job whose own one may be gone:
// the record first says that one will come, so that its consumer goes on from it.
// A crash in between leaves a silent holder, which the due consumer ends. The record
// says IN_QUEUE last, unless another run has begun by then.
func (l *Lease) releaseDetached(ctx context.Context) error {
	if err := l.loadMessage(ctx); err != nil {
		return err
	}
	if err := l.write(ctx, job.Touch, func(n *record.Record) { n.Requeued, n.AckTimeout = true, 0 }); err != nil {
		return err
	}
	var expect uint64
	waiting, err := l.consumer.q.read.message(ctx, l.consumer.at, l.Job.ID)
	switch {
	case err == nil:
		expect = waiting.QueueSeq
	case !errors.Is(err, bus.ErrNoMessage):
		return err
	}
	again := *l.msg
	again.Expires, again.Input, again.InputRef = l.rec.Expires, l.rec.Input, l.rec.InputRef
	if err := l.consumer.q.enqueue(ctx, l.consumer.at, &again, expect); err != nil && !errors.Is(err, bus.ErrConflict) {
		return err
	}
	err = l.write(ctx, job.Release, func(n *record.Record) {
		givenBack(n)
		n.QueueSeq, n.QueueExpires, n.Requeued, n.Detached = again.QueueSeq, again.QueueExpires, false, false
	})
	if err != nil && !errors.Is(err, ErrLost) {
		return err
	}
	l.consumer.release(l)
	return nil
}
