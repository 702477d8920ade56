package deliveries

import (
	"context"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/queue"
	"flightline/shared/record"
	"flightline/streams"
)

// Inspect checks one message of the tasks, the dead letters or the log, as
// bus.Client.BatchGet read it, and the payloads that it names. It changes nothing. It
// returns nil for a message without a defect, for a message that was written again
// meanwhile, and for messages of other streams. It returns bus.ErrUnavailable.
func (s *Store) Inspect(ctx context.Context, stream string, m *nats.Msg) (*queue.Defect, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	got := &bus.Message{Subject: bus.SubjectOf(m), Seq: bus.Sequence(m), Header: m.Header, Data: m.Data}
	switch stream {
	case streams.Webhooks, streams.Undelivered:
		return s.inspectTask(ctx, stream, got)
	case streams.Deliveries:
		if d, err := parseAttempt(got.Subject, got.Data, got.Seq); err != nil {
			return &queue.Defect{Kind: queue.DefectForm, Endpoint: d.Endpoint, Job: d.Job, Err: err}, nil
		}
	}
	return nil, nil //nolint:nilnil // no defect is no error
}

func (s *Store) inspectTask(ctx context.Context, stream string, m *bus.Message) (*queue.Defect, error) {
	ep, id, _, err := streams.ParseWebhook(m.Subject)
	if err != nil {
		return &queue.Defect{Kind: queue.DefectForm, Err: err}, nil //nolint:nilerr // that is the defect
	}
	r, err := record.Decode(record.Location{Endpoint: ep}, id, m)
	if err != nil {
		return &queue.Defect{Kind: queue.DefectForm, Endpoint: ep, Job: id, Err: err}, nil //nolint:nilerr // that is the defect
	}
	return queue.CheckPayloads(ctx, s.bus, stream, m.Seq, r, r.PayloadRefs()...)
}
