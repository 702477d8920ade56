package queue

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
)

// record is an attempt as it lies on the bus: in the queue message while the
// attempt waits, in its record from the first decision on. Both have one form:
// a header with everything but the payloads, so that the repeated headers tell
// a waiter or the recorder all that happened; and a body with the payloads.
type record struct {
	job.Job

	// keep is the retention that begins when the attempt ends.
	keep time.Duration
	// lease is the endpoint's, for whoever must judge a holder's silence.
	lease time.Duration
	// queueSeq and queueExpires are those of the attempt's queue message.
	queueSeq     uint64
	queueExpires time.Time
	// queueServer is the start of the server that gave queueSeq and ack (given.go).
	queueServer string
	// ack is the subject that extends and ends the lease; any process may use it.
	ack string
	// holder is the taker that picked the attempt up; unlike a worker's id it
	// does not outlive its process.
	holder string
	// changed is when the record was last written.
	changed time.Time
	// begun has the starts of the runs before the present one, the last ones
	// if there were many.
	begun []time.Time
	// emitted: the run that ended the attempt left chunks.
	emitted bool
	// beside: payloads of the attempt lie beside the record, or did.
	beside bool
	// confirm is how long the run may go on without any sign that its worker has
	// received it. 0: there was one, or none is needed.
	confirm time.Duration
	// astray counts the runs of the attempt that nobody is known to have received.
	astray int
	// kept: the record stays on disk for as long as it may (ghost.go).
	kept bool
	// requeued: an IN_QUEUE record whose queue message is about to be replaced.
	requeued bool
	// detached: the queue message may go before the job does, so the holder
	// says in the record that it lives, and its silence is FAILED.
	detached bool

	input, s3     []byte
	output        []byte
	inRef, outRef *payloadRef

	// seq is the stream sequence that this was read from: what the next
	// compare-and-set expects. 0: nothing is stored yet.
	seq uint64
	// server is the one that this was read from or written to, by its id.
	server string
	// clock knows how far the server's clock was set since the run began. It is
	// not stored.
	clock *clock
}

const (
	// metaHeader holds the wire form below.
	metaHeader = "Flightline-Job"
	// changeHeader tells a decision from a touch, which no counter counts.
	changeHeader = "Flightline-Change"

	decision = "decision"
	touch    = "touch"
)

func milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func millis(times []time.Time) []int64 {
	if len(times) == 0 {
		return nil
	}
	ms := make([]int64, len(times))
	for i, t := range times {
		ms[i] = milli(t)
	}
	return ms
}

func instants(ms []int64) []time.Time {
	if len(ms) == 0 {
		return nil
	}
	times := make([]time.Time, len(ms))
	for i, n := range ms {
		times[i] = instant(n)
	}
	return times
}

func (r *record) wire() wire {
	return wire{
		Status: r.Status, Mode: r.Mode, Class: r.Class,
		Attempt: int64(r.Attempt), Run: int64(r.Run), Lost: int64(r.Lost), Earlier: int64(r.Earlier),
		Submitted: milli(r.Submitted), Queued: milli(r.Queued), Started: milli(r.Started), Finished: milli(r.Finished),
		Deadline: milli(r.Deadline), Expires: milli(r.Expires), RetainUntil: milli(r.RetainUntil),
		Timeout: r.ExecutionTimeout.Milliseconds(), Keep: r.keep.Milliseconds(), Lease: r.lease.Milliseconds(),
		QueueSeq: r.queueSeq, QueueServer: r.queueServer, QueueExpires: milli(r.queueExpires), Ack: r.ack, Holder: r.holder, Changed: milli(r.changed),
		Requeued: r.requeued, Detached: r.detached, Begun: millis(r.begun), Emitted: r.emitted, Beside: r.beside, Kept: r.kept,
		Confirm: r.confirm.Milliseconds(), Astray: int64(r.astray), Worker: r.Worker, Webhook: r.Webhook, Trace: r.Trace, Origin: r.Origin,
		Input: int64(len(r.input)), S3: int64(len(r.s3)), InRef: r.inRef, OutRef: r.outRef,
	}
}

// shortMost is the longest output or error that travels in the header.
const shortMost = 4 << 10

// encode returns the header's form and the body.
func (r *record) encode() (wire, []byte) {
	w, output, text := r.wire(), r.output, r.Error
	if len(output) <= shortMost {
		w.Said, output = output, nil
	}
	if len(text) <= shortMost {
		w.Why, text = text, ""
	}
	w.Output, w.Error = int64(len(output)), int64(len(text))
	body := make([]byte, 0, len(r.input)+len(r.s3)+len(output)+len(text))
	body = append(body, r.input...)
	body = append(body, r.s3...)
	body = append(body, output...)
	return w, append(body, text...)
}

// message encodes r for subject. It sets no expectation, age or schedule.
func (r *record) message(subject, change string) (*nats.Msg, error) {
	w, body := r.encode()
	const most = 672 // without what was said and the trace
	meta, err := w.append(make([]byte, 0, most+len(w.Said)+len(w.Trace)+len(w.Origin)))
	if err != nil {
		return nil, fmt.Errorf("encode job %s: %w", r.ID, err)
	}
	m := &nats.Msg{Subject: subject, Data: body, Header: make(nats.Header, 6)}
	m.Header[metaHeader] = []string{string(meta)}
	m.Header[changeHeader] = []string{change}
	return m, nil
}

// decode reads what message wrote.
func decode(at place, id job.ID, m *stored) (*record, error) {
	w, err := parseWire(m.header.Get(metaHeader))
	if err != nil {
		return nil, fmt.Errorf("decode job %s: %w", id, err)
	}
	r := w.record(at, id, m.seq)
	r.server = m.server
	return r, r.decodeBody(w, m.data)
}

// record is what the header alone says.
func (w wire) record(at place, id job.ID, seq uint64) *record {
	r := &record{}
	w.fill(r, at, id, seq)
	return r
}

func (w *wire) fill(r *record, at place, id job.ID, seq uint64) {
	*r = record{
		Job: job.Job{
			ID: id, Endpoint: at.endpoint, Mode: w.Mode, Class: w.Class,
			Attempt: int(w.Attempt), Run: int(w.Run), Lost: int(w.Lost), Earlier: int(w.Earlier),
			Submitted: instant(w.Submitted), Queued: instant(w.Queued), Started: instant(w.Started), Finished: instant(w.Finished),
			Deadline: instant(w.Deadline), Expires: instant(w.Expires), RetainUntil: instant(w.RetainUntil),
			ExecutionTimeout: time.Duration(w.Timeout) * time.Millisecond, Worker: w.Worker, Webhook: w.Webhook,
			Trace: w.Trace, Origin: w.Origin,
		},
		keep: time.Duration(w.Keep) * time.Millisecond, lease: time.Duration(w.Lease) * time.Millisecond,
		queueSeq: w.QueueSeq, queueServer: w.QueueServer, queueExpires: instant(w.QueueExpires), ack: w.Ack, holder: w.Holder, changed: instant(w.Changed),
		requeued: w.Requeued, detached: w.Detached, begun: instants(w.Begun), emitted: w.Emitted, beside: w.Beside, kept: w.Kept,
		confirm: time.Duration(w.Confirm) * time.Millisecond, astray: int(w.Astray), inRef: w.InRef, outRef: w.OutRef, seq: seq,
	}
	r.restoreStatus(w.Status)
	r.output, r.Output, r.Error = w.Said, w.Said, w.Why
}

func (r *record) decodeBody(w wire, body []byte) error {
	if w.Input < 0 || w.S3 < 0 || w.Output < 0 || w.Error < 0 || w.Input+w.S3+w.Output+w.Error != int64(len(body)) {
		return fmt.Errorf("decode job %s: the body has %d bytes, not those its header names", r.ID, len(body))
	}
	cut := func(n int64) []byte {
		if n == 0 {
			return nil
		}
		part := body[:n:n]
		body = body[n:]
		return part
	}
	r.input, r.s3 = cut(w.Input), cut(w.S3)
	if w.Output > 0 {
		r.output = cut(w.Output)
		r.Output = r.output
	}
	if w.Error > 0 {
		r.Error = string(cut(w.Error))
	}
	return nil
}

// tellsAll reports whether the header has all that a caller may see.
func (w wire) tellsAll() bool { return w.Output+w.Error == 0 && w.OutRef == nil }

// physical is when the server may remove the record: an hour after its queue
// message is gone at the latest (data-model.md, principle 4).
func (r *record) physical() time.Time {
	end := r.Expires
	if r.queueExpires.After(end) {
		end = r.queueExpires
	}
	return end
}

// later returns the later of two instants.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
