package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/streams"
)

// DeliveryOutcome is how an attempt to deliver ended.
type DeliveryOutcome string

// The outcomes. Only DeliveryFailed has a Next.
const (
	Delivered       DeliveryOutcome = "delivered"
	DeliveryFailed  DeliveryOutcome = "failed"
	DeliveryGivenUp DeliveryOutcome = "given_up"
)

// Delivery is one attempt to deliver a completion, as the log keeps it for
// streams.WebhooksAge.
type Delivery struct {
	Endpoint string `json:"-"`
	Job      job.ID `json:"-"`
	Attempt  int    `json:"-"`
	// Try counts from 1, anew in each replay.
	Try int `json:"try"`
	// Replay is that of the Completion.
	Replay  string          `json:"replay,omitempty"`
	Outcome DeliveryOutcome `json:"outcome"`
	// Started is when the attempt began, in server time; Took how long it lasted.
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took"`
	// URL is the webhook's without what may be secret in it.
	URL string `json:"url"`
	// Status is that of the answer, 0 if there was none.
	Status int `json:"status,omitempty"`
	// Answer is the beginning of the answer's body.
	Answer string `json:"answer,omitempty"`
	// Error says what went wrong besides the status.
	Error string `json:"error,omitempty"`
	// Next is when the next attempt is due.
	Next time.Time `json:"next,omitzero"`
	// Seq is its place in the log, 0 if it is in none.
	Seq uint64 `json:"-"`
}

// ErrDeliveryLogged means that another process has logged an attempt of the
// same completion meanwhile.
var ErrDeliveryLogged = errors.New("queue: another attempt to deliver was logged")

// LastDelivery is the last attempt to deliver the completion of an attempt,
// the zero Delivery if there was none. It returns ErrUnavailable.
func (q *Queue) LastDelivery(ctx context.Context, c *Completion) (Delivery, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	m, err := q.leaderLast(ctx, streams.Deliveries, streams.DeliverySubject(c.Job.Endpoint, c.Job.ID, c.Job.Attempt))
	if errors.Is(err, errNoMessage) {
		return Delivery{}, nil
	}
	if err != nil {
		return Delivery{}, err
	}
	return deliveryOf(m.subject, m.data, m.seq)
}

// LogDelivery appends an attempt if the last one of its completion is still
// that of the sequence after (0: there was none), else it returns
// ErrDeliveryLogged. It returns ErrUnavailable if it is not known.
func (q *Queue) LogDelivery(ctx context.Context, d Delivery, after uint64) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	m, err := d.message(after)
	if err != nil {
		return err
	}
	err = q.put(ctx, streams.Deliveries, m)
	if errors.Is(err, errConflict) {
		return ErrDeliveryLogged
	}
	return err
}

func (d Delivery) message(after uint64) (*nats.Msg, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("log delivery of job %s: %w", d.Job, err)
	}
	m := &nats.Msg{Subject: streams.DeliverySubject(d.Endpoint, d.Job, d.Attempt), Data: data, Header: make(nats.Header, 1)}
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(after, 10))
	return m, nil
}

func deliveryOf(subject string, data []byte, seq uint64) (d Delivery, err error) {
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("read %s: %w", subject, err)
	}
	d.Seq = seq
	d.Endpoint, d.Job, d.Attempt, err = streams.ParseCompletion(subject)
	return d, err
}

// DeliveriesOf says which attempts to list.
type DeliveriesOf struct {
	// Job is one job, "" for all of the endpoint.
	Job job.ID
	// Since leaves out what began earlier.
	Since time.Time
	// Failed leaves out what was delivered.
	Failed bool
	// Before leaves out this place in the log and later ones; 0 means none.
	Before uint64
	// Most bounds the number, 1 at least.
	Most int
}

const (
	// logWindow is how many places of the log are looked at in one request,
	// logWindows how many requests one page may cost.
	logWindow, logWindows = 2000, 10
)

// Deliveries lists attempts to deliver an endpoint's webhooks, the newest
// first. next continues the list as Before, 0 if it is at its end; a page may
// be short, or empty, all the same. It returns ErrUnavailable.
func (q *Queue) Deliveries(ctx context.Context, endpoint string, which DeliveriesOf) (list []Delivery, next uint64, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	stream, err := q.js.Stream(ctx, streams.Deliveries)
	if err != nil {
		return nil, 0, foreign(err)
	}
	state := stream.CachedInfo().State
	end := state.LastSeq + 1
	if which.Before > 0 {
		end = min(end, which.Before)
	}
	filter := streams.DeliveryFilter(endpoint, which.Job)
	for range logWindows {
		if end <= max(1, state.FirstSeq) {
			return list, 0, nil
		}
		begin := max(state.FirstSeq, end-min(end, logWindow), 1)
		page, err := q.deliveriesIn(ctx, filter, begin, end)
		if err != nil {
			return nil, 0, err
		}
		for _, d := range slices.Backward(page) {
			switch {
			case d.Started.Before(which.Since):
				continue
			case which.Failed && d.Outcome == Delivered:
				continue
			case len(list) == which.Most:
				return list, list[len(list)-1].Seq, nil
			}
			list = append(list, d)
		}
		if len(page) > 0 && page[len(page)-1].Started.Add(streams.WebhookWait).Before(which.Since) {
			return list, 0, nil
		}
		end = begin
	}
	return list, end, nil
}

// deliveriesIn reads those of the places from begin up to end.
func (q *Queue) deliveriesIn(ctx context.Context, filter string, begin, end uint64) ([]Delivery, error) {
	var page []Delivery
	for begin < end {
		got, err := q.batchGet(ctx, streams.Deliveries, filter, begin, min(int(end-begin), 1000)) //nolint:gosec // a window is small
		if err != nil || len(got) == 0 {
			return page, err
		}
		for _, m := range got {
			if begin = bus.Sequence(m) + 1; begin > end {
				return page, nil
			}
			d, err := deliveryOf(m.Header.Get("Nats-Subject"), m.Data, begin-1)
			if err != nil {
				return nil, err
			}
			page = append(page, d)
		}
	}
	return page, nil
}
