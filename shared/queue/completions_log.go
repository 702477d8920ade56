package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
	// Seq is that of its message in the log, 0 if it is in none. Several that
	// succeeded at once share one.
	Seq uint64 `json:"-"`
	// Index is its place among those.
	Index int `json:"-"`
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
		return c.tries.find(ctx, c)
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
	_, err = q.put(ctx, streams.Deliveries, m)
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
