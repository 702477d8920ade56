package deliveries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Outcome is how an attempt to deliver ended.
type Outcome string

// The outcomes. Only Failed has a Next.
const (
	Delivered Outcome = "delivered"
	Failed    Outcome = "failed"
	GivenUp   Outcome = "given_up"
)

// Attempt is one attempt to deliver a task. The log keeps it for
// streams.WebhooksAge.
type Attempt struct {
	Endpoint string `json:"-"`
	Job      job.ID `json:"-"`
	Attempt  int    `json:"-"`
	// Try counts from 1 in each replay.
	Try int `json:"try"`
	// Replay is that of the Task.
	Replay  string  `json:"replay,omitempty"`
	Outcome Outcome `json:"outcome"`
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
	// Seq is that of its message in the log, 0 if it is in none.
	Seq uint64 `json:"-"`
}

// ErrLogged means that another process has logged an attempt of the
// same task meanwhile.
var ErrLogged = errors.New("deliveries: another attempt to deliver was logged")

// Last returns the last attempt to deliver the task, once it is on the disk: the task is
// removed or moved by it next. It is the zero Attempt if there was none. An attempt that
// cannot be decoded counts as Failed, with no number: the task begins with its first try
// again. It returns bus.ErrUnavailable.
func (s *Store) Last(ctx context.Context, c *Task) (Attempt, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	m, err := s.bus.LeaderLast(ctx, streams.Deliveries, streams.DeliverySubject(c.Job.Endpoint, c.Job.ID, c.Job.Attempt))
	if errors.Is(err, bus.ErrNoMessage) {
		return Attempt{}, nil
	}
	if err == nil {
		err = s.bus.WaitDurable(ctx, streams.Deliveries, m.Server)
	}
	if err != nil {
		return Attempt{}, err
	}
	last, err := parseAttempt(m.Subject, m.Data, m.Seq)
	if err != nil {
		s.warnUndecodable(ctx, m.Seq, err)
		return Attempt{Outcome: Failed, Seq: m.Seq}, nil
	}
	return last, nil
}

// warnUndecodable warns of an attempt that cannot be decoded: it must not keep others from
// being listed, nor its task from being delivered.
func (s *Store) warnUndecodable(ctx context.Context, seq uint64, err error) {
	s.log.WarnContext(ctx, "attempt to deliver a webhook cannot be decoded and is left out", "stream", streams.Deliveries, "sequence", seq, "err", err)
}

// Append appends an attempt if the last one of its task still has the
// sequence after (0: it has none), else it returns ErrLogged. It returns
// bus.ErrUnavailable if the outcome is unknown.
func (s *Store) Append(ctx context.Context, d Attempt, after uint64) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	m, err := d.message(after)
	if err != nil {
		return err
	}
	_, err = s.put(ctx, streams.Deliveries, m)
	if errors.Is(err, bus.ErrConflict) {
		return ErrLogged
	}
	return err
}

func (d Attempt) message(after uint64) (*nats.Msg, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("log delivery of job %s: %w", d.Job, err)
	}
	m := &nats.Msg{Subject: streams.DeliverySubject(d.Endpoint, d.Job, d.Attempt), Data: data, Header: make(nats.Header, 1)}
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(after, 10))
	return m, nil
}

func parseAttempt(subject string, data []byte, seq uint64) (d Attempt, err error) {
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("read %s: %w", subject, err)
	}
	d.Seq = seq
	d.Endpoint, d.Job, d.Attempt, err = streams.ParseWebhook(subject)
	return d, err
}

// Query selects attempts.
type Query struct {
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
	// minWindow and maxWindow bound how many messages of the log are looked at
	// in one request, maxWindows how many requests one page may cost.
	minWindow, maxWindow, maxWindows = 64, 2000, 15
)

// List lists attempts to deliver an endpoint's webhooks, the newest
// first. next continues the list as Before, 0 if it is at its end; a page may
// be short, or empty, all the same. It returns bus.ErrUnavailable.
func (s *Store) List(ctx context.Context, endpoint string, which Query) (list []Attempt, next uint64, err error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	if which.Job != "" {
		return s.listOfJob(ctx, endpoint, which)
	}
	state, err := s.bus.StreamState(ctx, streams.Deliveries)
	if err != nil {
		return nil, 0, err
	}
	end := state.LastSeq + 1
	if which.Before > 0 {
		end = min(end, which.Before)
	}
	window := uint64(minWindow)
	for range maxWindows {
		if end <= max(1, state.FirstSeq) {
			return list, 0, nil
		}
		begin := max(state.FirstSeq, end-min(end, window), 1)
		page, err := s.readRange(ctx, streams.DeliveryFilter(endpoint, ""), begin, end)
		if err != nil {
			return nil, 0, err
		}
		var full bool
		if list, full = which.add(list, page); full {
			return list, list[len(list)-1].Seq, nil
		}
		if len(page) > 0 && page[len(page)-1].Started.Add(streams.WebhookWait).Before(which.Since) {
			return list, 0, nil
		}
		end, window = begin, min(2*window, maxWindow)
	}
	return list, end, nil
}

// add appends the wanted ones of a page, the last one first, and reports
// whether one more would have been too many.
func (which Query) add(list, page []Attempt) ([]Attempt, bool) {
	for _, d := range slices.Backward(page) {
		switch {
		case d.Started.Before(which.Since):
		case which.Failed && d.Outcome == Delivered:
		case which.Before > 0 && d.Seq >= which.Before:
		case len(list) == which.Most:
			return list, true
		default:
			list = append(list, d)
		}
	}
	return list, false
}

// listOfJob reads all attempts of the job.
func (s *Store) listOfJob(ctx context.Context, endpoint string, which Query) (list []Attempt, next uint64, err error) {
	all, err := s.readRange(ctx, streams.DeliveryFilter(endpoint, which.Job), 1, 1<<52)
	if err != nil {
		return nil, 0, err
	}
	list, full := which.add(nil, all)
	if full {
		next = list[len(list)-1].Seq
	}
	return list, next, nil
}

// readRange reads the attempts of the sequences from begin up to end, without those that
// cannot be decoded.
func (s *Store) readRange(ctx context.Context, filter string, begin, end uint64) ([]Attempt, error) {
	var page []Attempt
	for begin < end {
		got, err := s.bus.BatchGet(ctx, streams.Deliveries, bus.Batch{From: begin, Filter: filter, Most: int(min(end-begin, 1000))})
		if err != nil || len(got) == 0 {
			return page, err
		}
		for _, m := range got {
			seq := bus.Sequence(m)
			if begin = seq + 1; seq >= end {
				return page, nil
			}
			d, err := parseAttempt(bus.SubjectOf(m), m.Data, seq)
			if err != nil {
				s.warnUndecodable(ctx, seq, err)
				continue
			}
			page = append(page, d)
		}
	}
	return page, nil
}

// Trim removes the oldest attempts of the log of deliveries if it holds
// more than maxBytes, and returns how many messages. A webhook task whose attempts
// were removed while it waited for its next one begins with its first again. It
// returns bus.ErrUnavailable.
func (s *Store) Trim(ctx context.Context, maxBytes int64) (uint64, error) {
	return s.trim(ctx, streams.Deliveries, maxBytes)
}

func (s *Store) trim(ctx context.Context, stream string, maxBytes int64) (uint64, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	removed, err := bus.Trim(ctx, s.js, stream, maxBytes, math.MaxUint64)
	return removed, bus.Unavailable(err)
}

// Drop removes what is kept of an endpoint's webhooks: the dead letters, the copies of
// payloads, and the log of deliveries. It may be repeated, and returns
// bus.ErrUnavailable.
func (s *Store) Drop(ctx context.Context, e endpoint.Endpoint) error {
	for _, of := range []struct{ stream, filter string }{
		{streams.Undelivered, streams.UndeliveredFilter(e.ID, "")},
		{streams.Payloads(e.Partition), streams.KeptFilter(e.Partition, e.ID)},
		{streams.Deliveries, streams.DeliveryFilter(e.ID, "")},
	} {
		within, cancel := bus.Bounded(ctx)
		err := s.bus.Purge(within, of.stream, of.filter)
		cancel()
		if err != nil {
			return fmt.Errorf("drop webhooks of %s: %w", e.ID, err)
		}
	}
	return nil
}
