package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// reader reads what is stored of jobs: records, queue messages, and what the
// consumers count. It changes nothing and hides nothing; Queue.current hides what
// has expired.
type reader struct {
	bus *bus.Client
	// trustAbsence and endpoints are TrustAbsence and EndpointsBucket of Config.
	trustAbsence bool
	endpoints    string
}

// record reads the record of one attempt from the leader; bus.ErrNoMessage.
func (rd reader) record(ctx context.Context, at record.Location, id job.ID, attempt int) (*record.Record, error) {
	return rd.last(ctx, at, id, streams.Records(at.Partition), streams.RecordSubject(at.Partition, at.Endpoint, id, attempt))
}

// message reads the job's queue message from the leader; bus.ErrNoMessage.
// It says IN_QUEUE, whatever the record says.
func (rd reader) message(ctx context.Context, at record.Location, id job.ID) (*record.Record, error) {
	r, err := rd.last(ctx, at, id, streams.Jobs(at.Endpoint), streams.AnyClass(at.Endpoint, id))
	if err != nil {
		return nil, err
	}
	r.QueueSeq, r.Seq = r.Seq, 0 // nothing is stored in the record yet
	return r, nil
}

func (rd reader) last(ctx context.Context, at record.Location, id job.ID, stream, subject string) (*record.Record, error) {
	m, err := rd.bus.LeaderLast(ctx, stream, subject)
	if err != nil {
		return nil, err
	}
	return rd.decode(at, id, m)
}

// decode reads a record whose deadline this process is to decide.
func (rd reader) decode(at record.Location, id job.ID, m *bus.Message) (*record.Record, error) {
	r, err := record.Decode(at, id, m)
	if err != nil {
		return nil, err
	}
	r.Clock = rd.bus.Clock()
	return r, nil
}

// lookUp is raw as far as the leaders know that are asked.
func (rd reader) lookUp(ctx context.Context, at record.Location, id job.ID) (*record.Record, error) {
	records, anyOne := streams.Records(at.Partition), streams.AnyAttempt(at.Partition, at.Endpoint, id)
	r, err := rd.last(ctx, at, id, records, anyOne)
	if err != nil && !errors.Is(err, bus.ErrNoMessage) {
		return nil, err
	}
	if r != nil && !r.Status.Retryable() {
		return r, nil
	}
	waiting, err := rd.message(ctx, at, id)
	switch {
	case err == nil && (r == nil || waiting.Attempt > r.Attempt):
		return waiting, nil
	case err != nil && !errors.Is(err, bus.ErrNoMessage):
		return nil, err
	case r != nil:
		return rd.newerThan(ctx, at, r)
	}
	// The record may have been written, and the message removed, in between.
	r, err = rd.last(ctx, at, id, records, anyOne)
	if errors.Is(err, bus.ErrNoMessage) {
		return nil, job.ErrNotFound
	}
	return r, err
}

// newerThan guards against a touch that was written to attempt n after a retry
// had already begun attempt n+1: the newest write is then not the newest attempt.
func (rd reader) newerThan(ctx context.Context, at record.Location, r *record.Record) (*record.Record, error) {
	for {
		next, err := rd.record(ctx, at, r.ID, r.Attempt+1)
		if errors.Is(err, bus.ErrNoMessage) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		r = next
	}
}

// raw is the record of a job's highest attempt, or its queue message while
// it has no record, also after it has expired; job.ErrNotFound, also for a job of an
// earlier endpoint of that id.
func (rd reader) raw(ctx context.Context, at record.Location, id job.ID) (*record.Record, error) {
	r, err := rd.lookUp(ctx, at, id)
	if errors.Is(err, job.ErrNotFound) {
		r, err = rd.confirmAbsent(ctx, at, id)
	}
	if err == nil && at.OfEarlier(&r.Job) {
		return nil, job.ErrNotFound
	}
	return r, err
}

// errMoved means that the connection went to another server between two requests
// that belong together.
var errMoved = fmt.Errorf("%w: the connection went to another server", bus.ErrUnavailable)

// confirmAbsent is lookUp's job.ErrNotFound, once it is confirmed; else what lookUp
// finds then, or bus.ErrUnavailable. A server that is alone needs no confirmation.
//
// In a cluster a leader that was cut off goes on to answer reads for 10 to 20 s.
// It lacks what was stored on the other side of the cut since. So the absence of
// a job is confirmed: both leaders commit an entry that changes nothing, which
// takes a majority, and the job is looked for again. An entry that arrives at an
// old leader too ends its leadership, if it still reaches anybody.
func (rd reader) confirmAbsent(ctx context.Context, at record.Location, id job.ID) (*record.Record, error) {
	if rd.trustAbsence || !rd.bus.Clustered() {
		return nil, job.ErrNotFound
	}
	return bus.UntilAnswered(ctx, func() (*record.Record, error) {
		server := rd.bus.Conn().ConnectedServerId()
		var both errgroup.Group
		both.Go(func() error {
			stream := streams.Jobs(at.Endpoint)
			err := rd.bus.Commit(ctx, stream, bus.MsgDelete(stream), `{"seq":0}`)
			if errors.Is(err, errDeleted) {
				return nil
			}
			return err
		})
		both.Go(func() error { return rd.commitRecords(ctx, at) })
		if err := both.Wait(); err != nil {
			return nil, err
		}
		r, err := rd.lookUp(ctx, at, id)
		if errors.Is(err, job.ErrNotFound) && rd.bus.Conn().ConnectedServerId() != server {
			return nil, errMoved
		}
		return r, err
	})
}

// commitRecords makes the leader of the records store an entry behind all that was stored
// there: once it is answered, the leader has applied those too.
func (rd reader) commitRecords(ctx context.Context, at record.Location) error {
	stream := streams.Records(at.Partition)
	return rd.bus.Commit(ctx, stream, bus.StreamPurge(stream), `{"filter":"`+bus.CheckFilter+`"}`)
}

// queueIsOriginal reports whether this queue held r's message, so that it
// was removed there: a queue that was made again after it had been lost, lost
// messages to damaged files, or went back with its server proves nothing. That
// of a deleted endpoint proves enough.
func (rd reader) queueIsOriginal(ctx context.Context, at record.Location, r *record.Record) (bool, error) {
	var info struct {
		Config struct {
			Metadata map[string]string `json:"metadata"`
		} `json:"config"`
		State struct {
			Last uint64           `json:"last_seq"` //nolint:tagliatelle // the server's name
			Lost *json.RawMessage `json:"lost"`
		} `json:"state"`
	}
	stream := streams.Jobs(at.Endpoint)
	const lostToo = `{"deleted_details":true}` // only such an answer names what the server lost
	err := rd.bus.Query(ctx, stream, bus.StreamInfo(stream), []byte(lostToo), &info)
	if errors.Is(err, errDeleted) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	lost := r.Changed.Before(streams.Recovered(info.Config.Metadata))
	return !lost && info.State.Lost == nil && r.QueueSeq <= info.State.Last, nil
}

// waitRecordDurable returns when the end that a caller is about to see is on the disk.
func (rd reader) waitRecordDurable(ctx context.Context, at record.Location, r *record.Record) error {
	if !r.Status.Terminal() {
		return nil
	}
	return rd.bus.WaitDurable(ctx, streams.Records(at.Partition), r.Server)
}

// waitJobDurable returns when all that r shows is on the disk: the record, and the
// queue message that it may rest on.
func (rd reader) waitJobDurable(ctx context.Context, at record.Location, r *record.Record) error {
	if err := rd.bus.WaitDurable(ctx, streams.Jobs(at.Endpoint), r.Server); err != nil {
		return err
	}
	return rd.bus.WaitDurable(ctx, streams.Records(at.Partition), r.Server)
}

// consumerInfo is what a class's consumer says of itself.
type consumerInfo struct {
	Delivered struct {
		// Stream is the last message that was handed out for the first time.
		Stream uint64 `json:"stream_seq"` //nolint:tagliatelle // the server's name
	} `json:"delivered"`
	// AckFloor is a message that no unacknowledged one comes before.
	AckFloor struct {
		Stream uint64 `json:"stream_seq"` //nolint:tagliatelle // as above
	} `json:"ack_floor"` //nolint:tagliatelle // as above
	// Pending counts those that come after the last delivered one, Out those that
	// were delivered and are not acknowledged.
	Pending int `json:"num_pending"`     //nolint:tagliatelle // as above
	Out     int `json:"num_ack_pending"` //nolint:tagliatelle // as above
}

// consumer asks the consumer of a class about itself.
func (rd reader) consumer(ctx context.Context, endpoint string, c job.Class) (info consumerInfo, err error) {
	stream := streams.Jobs(endpoint)
	err = rd.bus.Query(ctx, stream, bus.ConsumerInfo(stream, streams.Consumer(c)), nil, &info)
	return info, err
}

// endpoint reads an endpoint as it is on record now. It returns endpoint.ErrNotFound
// and bus.ErrUnavailable.
func (rd reader) endpoint(ctx context.Context, id string) (e endpoint.Endpoint, err error) {
	stored, err := rd.bus.LeaderLast(ctx, streams.Bucket(rd.endpoints), streams.KeySubject(rd.endpoints, id))
	if errors.Is(err, bus.ErrNoMessage) || err == nil && len(stored.Data) == 0 { // a delete marker
		return e, endpoint.ErrNotFound
	}
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(stored.Data, &e); err != nil {
		return e, fmt.Errorf("read endpoint %s: %w", id, err)
	}
	return e, nil
}
