package queue

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/job"
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
	// queue. NATS was killed and brought a forgotten record back (ghost.go).
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

// Inspect checks one message of a queue, of the records, the webhooks or the log
// of deliveries, as bus.BatchGet read it, and what it needs elsewhere. It changes
// nothing. It returns nil for a job without a defect, that is hidden by its
// age, or that was written again meanwhile, and for messages of other streams. It
// returns ErrUnavailable.
//
// A queue message without a record is as it should be: the record begins with the
// pick-up. So is a message whose attempt has ended: the next delivery removes it.
func (q *Queue) Inspect(ctx context.Context, stream string, m *nats.Msg) (*Defect, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	got := &stored{subject: m.Header.Get(jetstream.SubjectHeader), seq: bus.Sequence(m), header: m.Header, data: m.Data}
	part, _ := streams.PartOf(stream)
	switch {
	case part == streams.PartJobs:
		return q.inspectQueued(ctx, stream, got)
	case part == streams.PartRecords:
		return q.inspectRecord(ctx, stream, got)
	case stream == streams.Webhooks, stream == streams.Undelivered:
		return q.inspectCompletion(ctx, stream, got)
	case stream == streams.Deliveries:
		return inspectDelivery(got), nil
	}
	return nil, nil //nolint:nilnil // no defect is no error
}

func malformed(endpoint string, id job.ID, err error) (*Defect, error) {
	return &Defect{DefectForm, endpoint, id, err}, nil
}

func (q *Queue) inspectQueued(ctx context.Context, stream string, m *stored) (*Defect, error) {
	at := place{endpoint: streams.EndpointOf(m.subject)}
	r, err := decode(at, streams.JobOf(m.subject), m)
	if err != nil {
		return malformed(at.endpoint, streams.JobOf(m.subject), err)
	}
	if !r.Visible(q.Now()) || r.inRef == nil {
		return nil, nil //nolint:nilnil // no defect is no error
	}
	d, err := q.inspectPayload(ctx, r, r.inRef)
	if d == nil || err != nil {
		return nil, err
	}
	if at.partition, err = streams.PartitionOf(r.inRef.Subject); err != nil {
		return d, nil //nolint:nilerr // that is the defect
	}
	record, err := q.readRecord(ctx, at, r.ID, r.Attempt)
	if err == nil && record.Status.Terminal() { // the message is left over
		return nil, nil //nolint:nilnil // no defect is no error
	}
	if err != nil && !errors.Is(err, errNoMessage) {
		return nil, err
	}
	return q.confirm(ctx, stream, m.seq, d)
}

func (q *Queue) inspectRecord(ctx context.Context, stream string, m *stored) (*Defect, error) {
	if !strings.Contains(m.subject, ".r.") {
		return nil, nil //nolint:nilnil // a timer
	}
	ep, id, _, err := streams.ParseRecord(m.subject)
	if err != nil {
		return malformed("", "", err)
	}
	r, err := decode(place{endpoint: ep}, id, m)
	if err != nil {
		return malformed(ep, id, err)
	}
	if !r.Visible(q.Now()) {
		return nil, nil //nolint:nilnil // no defect is no error
	}
	for _, ref := range r.needed() {
		if d, err := q.inspectPayload(ctx, r, ref); d != nil || err != nil {
			if err != nil {
				return nil, err
			}
			return q.confirm(ctx, stream, m.seq, d)
		}
	}
	d, err := q.inspectPending(ctx, r)
	if d == nil || err != nil {
		return nil, err
	}
	return q.confirm(ctx, stream, m.seq, d)
}

// needed are the payloads that somebody may yet read: the input of an attempt
// that may run or be retried, and an output.
func (r *record) needed() []*payloadRef {
	var all []*payloadRef
	if r.inRef != nil && (!r.Status.Terminal() || retryable(r.Status)) {
		all = append(all, r.inRef)
	}
	if r.outRef != nil {
		all = append(all, r.outRef)
	}
	return all
}

// inspectPending looks for the queue message of an attempt that has not ended.
func (q *Queue) inspectPending(ctx context.Context, r *record) (*Defect, error) {
	if r.Status.Terminal() || r.detached {
		return nil, nil //nolint:nilnil // no defect is no error
	}
	at := place{endpoint: r.Endpoint}
	_, err := q.readMessage(ctx, at, r.ID)
	if err == nil || errors.Is(err, ErrMissing) {
		return nil, nil //nolint:nilnil // the doctor names a missing queue by itself
	}
	if !errors.Is(err, errNoMessage) {
		return nil, err
	}
	removed, proof := q.proves(ctx, at, r)
	if proof != nil {
		return nil, proof
	}
	if removed {
		return &Defect{DefectLeftover, r.Endpoint, r.ID, err}, nil
	}
	return &Defect{DefectMessage, r.Endpoint, r.ID, err}, nil
}

func (q *Queue) inspectPayload(ctx context.Context, r *record, ref *payloadRef) (*Defect, error) {
	p, err := streams.PartitionOf(ref.Subject)
	if err == nil {
		_, err = q.loadPayload(ctx, place{r.Endpoint, p}, ref)
	}
	if err == nil || errors.Is(err, ErrUnavailable) {
		return nil, err
	}
	return &Defect{DefectPayload, r.Endpoint, r.ID, err}, nil
}

func (q *Queue) inspectCompletion(ctx context.Context, stream string, m *stored) (*Defect, error) {
	ep, id, _, err := streams.ParseCompletion(m.subject)
	if err != nil {
		return malformed("", "", err)
	}
	r, err := decode(place{endpoint: ep}, id, m)
	if err != nil {
		return malformed(ep, id, err)
	}
	for _, ref := range []*payloadRef{r.inRef, r.outRef} {
		if ref == nil {
			continue
		}
		if d, err := q.inspectPayload(ctx, r, ref); err != nil || d != nil {
			if err != nil {
				return nil, err
			}
			return q.confirm(ctx, stream, m.seq, d)
		}
	}
	return nil, nil //nolint:nilnil // no defect is no error
}

func inspectDelivery(m *stored) *Defect {
	if ep, several := streams.ParseFirstTries(m.subject); several {
		if _, err := appendFirstTries(nil, ep, m.data, m.seq); err != nil {
			return &Defect{Kind: DefectForm, Endpoint: ep, Err: err}
		}
		return nil
	}
	d, err := deliveryOf(m.subject, m.data, m.seq)
	if err != nil {
		return &Defect{DefectForm, d.Endpoint, d.Job, err}
	}
	return nil
}

// confirm returns the defect if its message is still the newest on its subject.
func (q *Queue) confirm(ctx context.Context, stream string, seq uint64, d *Defect) (*Defect, error) {
	_, err := q.leaderSeq(ctx, stream, seq)
	if errors.Is(err, errNoMessage) {
		return nil, nil //nolint:nilnil // it was written again, or removed
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}
