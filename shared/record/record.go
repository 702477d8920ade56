// Package record has the stored form of an attempt of a job: its header, its
// body, and its payloads in parts. It decides nothing; shared/queue is the only
// package that writes records (docs/adr/0047). The form is described in
// docs/design/data-model.md.
package record

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/stats"
)

// Location is where the messages of an endpoint are stored.
type Location struct {
	// Endpoint is the endpoint's id.
	Endpoint string
	// Partition is that of its records and payloads, from 0 (streams.Records).
	Partition int
	// Created is when the endpoint was made; the zero time where no job of an earlier
	// endpoint of the same id is looked for.
	Created time.Time
}

// LocationOf returns the location of an endpoint.
func LocationOf(e endpoint.Endpoint) Location { return Location{e.ID, e.Partition, e.Created} }

// OfEarlier reports whether a job was accepted by an endpoint of the same id that was
// deleted before this one was made. Submit gives an endpoint no job that is older than
// the endpoint itself, whatever the clocks say.
func (l Location) OfEarlier(j *job.Job) bool {
	made := l.Created.Truncate(time.Millisecond) // as precise as a job's times
	return j.Submitted.Before(made) && j.Queued.Before(made)
}

// Record is an attempt as it is stored: in the queue message while the attempt
// waits, in its record from the first decision on. Both have one form: a header
// with everything but the payloads, and a body with the payloads. So a consumer
// that reads only headers knows all that happened.
//
// Instants are server time. A zero field is not set.
type Record struct {
	job.Job

	// Retention begins when the attempt ends.
	Retention time.Duration
	// Lease is the endpoint's at the submission. It decides when a holder is silent.
	Lease time.Duration
	// QueueSeq and QueueExpires are the sequence and the expiry of the queue message.
	QueueSeq     uint64
	QueueExpires time.Time
	// QueueServer names the start of the server that gave QueueSeq and AckSubject.
	QueueServer string
	// AckSubject extends and ends the lease. Any process may use it.
	AckSubject string
	// Holder is the consumer that claimed the attempt. Unlike Worker it does not
	// outlive its process.
	Holder string
	// Changed is when the record was last written.
	Changed time.Time
	// StartTimes are those of the runs before the present one, the last 32 of them.
	StartTimes []time.Time
	// Emitted: the run that ended the attempt emitted chunks.
	Emitted bool
	// ExternalPayload: payloads of the attempt are stored beside the record, or were.
	ExternalPayload bool
	// AckTimeout is how long the run may last before its worker shows that it
	// received the job. 0: it did, or need not.
	AckTimeout time.Duration
	// Undelivered counts the runs of the attempt that no worker is known to have received.
	Undelivered int
	// RetainOnDisk: the record stays until RemovedAfter, also after its retention
	// (docs/adr/0013).
	RetainOnDisk bool
	// Requeued: the queue message is about to be replaced, and the record then says IN_QUEUE.
	Requeued bool
	// Detached: the queue message may be removed before the job ends. So the holder
	// writes its heartbeats to the record, and its silence is FAILED.
	Detached bool
	// EndSeq is the stream sequence of the write that ended the attempt, once another
	// write followed it.
	EndSeq uint64

	// Input is the input if it is in the message, InputRef if it is beside it.
	Input    []byte
	InputRef *PayloadRef
	// S3Config is the submission's. It is a secret.
	S3Config []byte
	// InlineOutput is the output, or the progress, if it is in the message;
	// OutputRef is set if it is beside it. Job.Output may be loaded from there.
	InlineOutput []byte
	OutputRef    *PayloadRef

	// Seq is the stream sequence that the record was read from, which the next
	// compare-and-set expects. 0: it is not stored yet.
	Seq uint64
	// Server is the id of the server that it was read from or written to.
	Server string
	// Clock knows how far the server's clock was set since the run began. It is
	// not stored.
	Clock *bus.Clock
}

const (
	// MetaHeader has the record without its payloads, as JSON (wire.go).
	MetaHeader = "Flightline-Job"
	// ChangeHeader has Decision or Touch.
	ChangeHeader = "Flightline-Change"

	// Decision marks a write that began an attempt or a run, or ended it.
	Decision = "decision"
	// Touch marks a write that left the status as it was. It adds no event and is not
	// counted.
	Touch = "touch"
)

func millis(times []time.Time) []int64 {
	if len(times) == 0 {
		return nil
	}
	ms := make([]int64, len(times))
	for i, t := range times {
		ms[i] = job.UnixMilli(t)
	}
	return ms
}

func instants(ms []int64) []time.Time {
	if len(ms) == 0 {
		return nil
	}
	times := make([]time.Time, len(ms))
	for i, n := range ms {
		times[i] = job.FromUnixMilli(n)
	}
	return times
}

func (r *Record) wire() wire {
	return wire{
		Status: r.Status, Mode: r.Mode, Class: r.Class,
		Attempt: int64(r.Attempt), Run: int64(r.Run), Lost: int64(r.Lost), Earlier: int64(r.Earlier),
		Submitted: job.UnixMilli(r.Submitted), Queued: job.UnixMilli(r.Queued), Started: job.UnixMilli(r.Started), Finished: job.UnixMilli(r.Finished),
		Deadline: job.UnixMilli(r.Deadline), Expires: job.UnixMilli(r.Expires), RetainUntil: job.UnixMilli(r.RetainUntil),
		ExecutionTimeout: r.ExecutionTimeout.Milliseconds(), Retention: r.Retention.Milliseconds(), Lease: r.Lease.Milliseconds(),
		QueueSeq: r.QueueSeq, QueueServer: r.QueueServer, QueueExpires: job.UnixMilli(r.QueueExpires), AckSubject: r.AckSubject, Holder: r.Holder, Changed: job.UnixMilli(r.Changed),
		Requeued: r.Requeued, Detached: r.Detached, EndSeq: r.EndSeq, StartTimes: millis(r.StartTimes), Emitted: r.Emitted, ExternalPayload: r.ExternalPayload, RetainOnDisk: r.RetainOnDisk,
		AckTimeout: r.AckTimeout.Milliseconds(), Undelivered: int64(r.Undelivered), Worker: r.Worker, Webhook: r.Webhook, Trace: r.Trace, Origin: r.Origin,
		InputSize: int64(len(r.Input)), S3ConfigSize: int64(len(r.S3Config)), InputRef: r.InputRef, OutputRef: r.OutputRef,
	}
}

// maxInlineText is the longest output or error, in bytes, that travels in the header.
const maxInlineText = 4 << 10

// encode returns what the header and the body of a message have.
func (r *Record) encode() (wire, []byte) {
	w, output, text := r.wire(), r.InlineOutput, r.Error
	if len(output) <= maxInlineText {
		w.InlineOutput, output = output, nil
	}
	if len(text) <= maxInlineText {
		w.InlineError, text = text, ""
	} else {
		w.Cause = stats.Cause(text)
	}
	w.OutputSize, w.ErrorSize = int64(len(output)), int64(len(text))
	body := make([]byte, 0, len(r.Input)+len(r.S3Config)+len(output)+len(text))
	body = append(body, r.Input...)
	body = append(body, r.S3Config...)
	body = append(body, output...)
	return w, append(body, text...)
}

// Message encodes r as a message to be published to subject; change is the value of
// ChangeHeader. The caller adds the expected sequence, the ttl and the schedule.
func (r *Record) Message(subject, change string) (*nats.Msg, error) {
	w, body := r.encode()
	const fixedSize = 672 // the longest header without its output, trace and origin
	meta, err := w.append(make([]byte, 0, fixedSize+len(w.InlineOutput)+len(w.Trace)+len(w.Origin)))
	if err != nil {
		return nil, fmt.Errorf("encode job %s: %w", r.ID, err)
	}
	m := &nats.Msg{Subject: subject, Data: body, Header: make(nats.Header, 6)}
	m.Header[MetaHeader] = []string{string(meta)}
	m.Header[ChangeHeader] = []string{change}
	return m, nil
}

// ErrDamaged means that what is stored of a job cannot be decoded. A retry does not help.
var ErrDamaged = errors.New("the stored job is damaged")

// Decode reads what Message wrote. It returns ErrDamaged.
func Decode(at Location, id job.ID, m *bus.Message) (*Record, error) {
	w, err := parseWire(m.Header.Get(MetaHeader))
	if err != nil {
		return nil, fmt.Errorf("%w: decode job %s: %w", ErrDamaged, id, err)
	}
	r := w.record(at, id, m.Seq)
	r.Server = m.Server
	return r, r.decodeBody(w, m.Data)
}

// ParseHeader decodes the header of a message that Message made and that is stored
// with the sequence seq. A long error is shortened to its cause (stats.Cause). complete
// is false if the job's output or error is not in the header but in the body, or stored
// beside the record. It returns ErrDamaged.
func ParseHeader(at Location, id job.ID, header nats.Header, seq uint64) (r *Record, complete bool, err error) {
	w, err := parseWire(header.Get(MetaHeader))
	if err != nil {
		return nil, false, fmt.Errorf("%w: decode job %s: %w", ErrDamaged, id, err)
	}
	return w.record(at, id, seq), w.OutputSize+w.ErrorSize == 0 && w.OutputRef == nil, nil
}

// record decodes what the header alone has.
func (w *wire) record(at Location, id job.ID, seq uint64) *Record {
	return &Record{
		Job: job.Job{
			ID: id, Endpoint: at.Endpoint, Status: w.Status, Mode: w.Mode, Class: w.Class,
			Attempt: int(w.Attempt), Run: int(w.Run), Lost: int(w.Lost), Earlier: int(w.Earlier),
			Submitted: job.FromUnixMilli(w.Submitted), Queued: job.FromUnixMilli(w.Queued), Started: job.FromUnixMilli(w.Started), Finished: job.FromUnixMilli(w.Finished),
			Deadline: job.FromUnixMilli(w.Deadline), Expires: job.FromUnixMilli(w.Expires), RetainUntil: job.FromUnixMilli(w.RetainUntil),
			ExecutionTimeout: time.Duration(w.ExecutionTimeout) * time.Millisecond, Worker: w.Worker, Webhook: w.Webhook,
			Trace: w.Trace, Origin: w.Origin, Output: w.InlineOutput, Error: cmp.Or(w.InlineError, w.Cause),
		},
		Retention: time.Duration(w.Retention) * time.Millisecond, Lease: time.Duration(w.Lease) * time.Millisecond,
		QueueSeq: w.QueueSeq, QueueServer: w.QueueServer, QueueExpires: job.FromUnixMilli(w.QueueExpires), AckSubject: w.AckSubject, Holder: w.Holder, Changed: job.FromUnixMilli(w.Changed),
		Requeued: w.Requeued, Detached: w.Detached, EndSeq: w.EndSeq, StartTimes: instants(w.StartTimes), Emitted: w.Emitted, ExternalPayload: w.ExternalPayload, RetainOnDisk: w.RetainOnDisk,
		AckTimeout: time.Duration(w.AckTimeout) * time.Millisecond, Undelivered: int(w.Undelivered), InputRef: w.InputRef, OutputRef: w.OutputRef, Seq: seq,
		InlineOutput: w.InlineOutput,
	}
}

func (r *Record) decodeBody(w wire, body []byte) error {
	if w.InputSize < 0 || w.S3ConfigSize < 0 || w.OutputSize < 0 || w.ErrorSize < 0 || w.InputSize+w.S3ConfigSize+w.OutputSize+w.ErrorSize != int64(len(body)) {
		return fmt.Errorf("%w: decode job %s: the body has %d bytes, and its header says %d", ErrDamaged, r.ID, len(body), w.InputSize+w.S3ConfigSize+w.OutputSize+w.ErrorSize)
	}
	cut := func(n int64) []byte {
		if n == 0 {
			return nil
		}
		part := body[:n:n]
		body = body[n:]
		return part
	}
	r.Input, r.S3Config = cut(w.InputSize), cut(w.S3ConfigSize)
	if w.OutputSize > 0 {
		r.InlineOutput = cut(w.OutputSize)
		r.Output = r.InlineOutput
	}
	if w.ErrorSize > 0 {
		r.Error = string(cut(w.ErrorSize))
	}
	return nil
}

// PayloadRefs are those of the payloads that are stored beside the message.
func (r *Record) PayloadRefs() (refs []*PayloadRef) {
	for _, ref := range []*PayloadRef{r.InputRef, r.OutputRef} {
		if ref != nil {
			refs = append(refs, ref)
		}
	}
	return refs
}

// RemovedAfter is the instant after which the server removes the record, within
// streams.Margin (docs/design/data-model.md#principles, 4).
func (r *Record) RemovedAfter() time.Time { return job.Later(r.Expires, r.QueueExpires) }

// CurrentDeadline is Deadline as the server's clock shows it now: it moves with the
// clock where that was set since the run began. Zero: the run has none.
func (r *Record) CurrentDeadline() time.Time {
	if r.Deadline.IsZero() {
		return time.Time{}
	}
	return r.Deadline.Add(r.Clock.StepSince(r.Started))
}

// Overdue reports whether the run that holds the job is past its deadline.
func (r *Record) Overdue(now time.Time) bool {
	held := r.Job
	held.Deadline = r.CurrentDeadline()
	return held.Overdue(now)
}
