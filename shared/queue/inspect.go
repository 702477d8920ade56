package queue

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// DefectKind is what is wrong with a stored message.
type DefectKind string

// The kinds of a Defect.
const (
	// DefectForm: the message cannot be decoded.
	DefectForm DefectKind = "form"
	// DefectPayload: the input or output beside it is missing or incomplete.
	DefectPayload DefectKind = "payload"
	// DefectMessage: the job has not ended, and its queue lost its message.
	DefectMessage DefectKind = "message"
	// DefectLeftover: the job has not ended, and its message was removed from its
	// queue. NATS was killed and brought a forgotten record back (read.go).
	DefectLeftover DefectKind = "leftover"
)

// Defect is what is wrong with a stored message that can be read.
type Defect struct {
	Kind DefectKind
	// Endpoint and Job are "" if not even the subject is right.
	Endpoint string
	Job      job.ID
	Err      error
}

// Inspect checks one message of a queue or of the records, as bus.Client.BatchGet read
// it, and what it needs elsewhere. It changes
// nothing. It returns nil for a job without a defect, that is hidden by its
// age, or that was written again meanwhile, and for messages of other streams. It
// returns bus.ErrUnavailable.
//
// A queue message without a record is as it should be: the record begins with the
// pick-up. So is a message whose attempt has ended: the next delivery removes it.
func (q *Queue) Inspect(ctx context.Context, stream string, m *nats.Msg) (*Defect, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	got := &bus.Message{Subject: bus.SubjectOf(m), Seq: bus.Sequence(m), Header: m.Header, Data: m.Data}
	part, _ := streams.PartOf(stream)
	if part == streams.PartJobs {
		return q.read.inspectQueued(ctx, stream, got)
	}
	if part == streams.PartRecords {
		return q.read.inspectRecord(ctx, stream, got)
	}
	return nil, nil //nolint:nilnil // no defect is no error
}

func malformed(endpoint string, id job.ID, err error) (*Defect, error) {
	return &Defect{DefectForm, endpoint, id, err}, nil
}

func (rd reader) inspectQueued(ctx context.Context, stream string, m *bus.Message) (*Defect, error) {
	at := record.Location{Endpoint: streams.EndpointOf(m.Subject)}
	r, err := record.Decode(at, streams.JobOf(m.Subject), m)
	if err != nil {
		return malformed(at.Endpoint, streams.JobOf(m.Subject), err)
	}
	if !r.Visible(rd.bus.Now()) || r.InputRef == nil {
		return nil, nil //nolint:nilnil // no defect is no error
	}
	d, err := CheckPayloads(ctx, rd.bus, stream, m.Seq, r, r.InputRef)
	if d == nil || err != nil {
		return nil, err
	}
	if at.Partition, err = streams.PayloadPartition(r.InputRef.Subject); err != nil {
		return d, nil //nolint:nilerr // that is the defect
	}
	record, err := rd.record(ctx, at, r.ID, r.Attempt)
	if err == nil && record.Status.Terminal() { // the message is left over
		return nil, nil //nolint:nilnil // no defect is no error
	}
	if err != nil && !errors.Is(err, bus.ErrNoMessage) {
		return nil, err
	}
	return d, nil
}

func (rd reader) inspectRecord(ctx context.Context, stream string, m *bus.Message) (*Defect, error) {
	if !strings.Contains(m.Subject, ".r.") {
		return nil, nil //nolint:nilnil // a timer
	}
	ep, id, _, err := streams.ParseRecord(m.Subject)
	if err != nil {
		return malformed("", "", err)
	}
	r, err := record.Decode(record.Location{Endpoint: ep}, id, m)
	if err != nil {
		return malformed(ep, id, err)
	}
	if !r.Visible(rd.bus.Now()) {
		return nil, nil //nolint:nilnil // no defect is no error
	}
	if r.Status.Terminal() && !r.Status.Retryable() {
		r.InputRef = nil // it cannot be read any more
	}
	if d, err := CheckPayloads(ctx, rd.bus, stream, m.Seq, r, r.PayloadRefs()...); d != nil || err != nil {
		return d, err
	}
	d, err := rd.inspectPending(ctx, r)
	if d == nil || err != nil {
		return nil, err
	}
	return confirmDefect(ctx, rd.bus, stream, m.Seq, d)
}

// inspectPending looks for the queue message of an attempt that has not ended.
func (rd reader) inspectPending(ctx context.Context, r *record.Record) (*Defect, error) {
	if r.Status.Terminal() || r.Detached {
		return nil, nil //nolint:nilnil // no defect is no error
	}
	at := record.Location{Endpoint: r.Endpoint}
	_, err := rd.message(ctx, at, r.ID)
	if err == nil || errors.Is(err, bus.ErrMissing) {
		return nil, nil //nolint:nilnil // the doctor names a missing queue by itself
	}
	if !errors.Is(err, bus.ErrNoMessage) {
		return nil, err
	}
	removed, proof := rd.queueIsOriginal(ctx, at, r)
	if proof != nil {
		return nil, proof
	}
	if removed {
		return &Defect{DefectLeftover, r.Endpoint, r.ID, err}, nil
	}
	return &Defect{DefectMessage, r.Endpoint, r.ID, err}, nil
}

// CheckPayloads reads payloads of r, which was read from the message seq of a stream. It
// returns the defect of the first payload that is not whole, and nil if all are, or if the
// message was written again meanwhile, and bus.ErrUnavailable.
func CheckPayloads(ctx context.Context, c *bus.Client, stream string, seq uint64, r *record.Record, refs ...*record.PayloadRef) (*Defect, error) {
	for _, ref := range refs {
		_, err := record.LoadPayload(ctx, c, ref)
		if errors.Is(err, bus.ErrUnavailable) {
			return nil, err
		}
		if err != nil {
			return confirmDefect(ctx, c, stream, seq, &Defect{DefectPayload, r.Endpoint, r.ID, err})
		}
	}
	return nil, nil //nolint:nilnil // no defect is no error
}

// confirmDefect returns the defect if its message is still the newest on its subject.
func confirmDefect(ctx context.Context, c *bus.Client, stream string, seq uint64, d *Defect) (*Defect, error) {
	_, err := c.LeaderAt(ctx, stream, seq)
	if errors.Is(err, bus.ErrNoMessage) {
		return nil, nil //nolint:nilnil // it was written again, or removed
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}
