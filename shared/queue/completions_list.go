package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/streams"
)

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
	// leastWindow and logWindow bound how many messages of the log are looked at
	// in one request, logWindows how many requests one page may cost.
	leastWindow, logWindow, logWindows = 64, 2000, 15
	// windowFull is how many deliveries make a window large enough.
	windowFull = 500
	// indexBits is how much of a place is the index in a message.
	indexBits = 12
)

// place orders the log, as far as its numbers go for 2^52 messages.
func (d Delivery) place() uint64 { return d.Seq<<indexBits | uint64(d.Index) } //nolint:gosec // at most firstTriesMost

// Deliveries lists attempts to deliver an endpoint's webhooks, the newest
// first. next continues the list as Before, 0 if it is at its end; a page may
// be short, or empty, all the same. It returns ErrUnavailable.
func (q *Queue) Deliveries(ctx context.Context, endpoint string, which DeliveriesOf) (list []Delivery, next uint64, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if which.Job != "" {
		return q.deliveriesOfJob(ctx, endpoint, which)
	}
	stream, err := q.js.Stream(ctx, streams.Deliveries)
	if err != nil {
		return nil, 0, foreign(err)
	}
	state := stream.CachedInfo().State
	end := state.LastSeq + 1
	if which.Before > 0 {
		end = min(end, which.Before>>indexBits+1)
	}
	window := uint64(leastWindow)
	for range logWindows {
		if end <= max(1, state.FirstSeq) {
			return list, 0, nil
		}
		begin := max(state.FirstSeq, end-min(end, window), 1)
		page, err := q.deliveriesIn(ctx, streams.DeliveryFilter(endpoint, ""), begin, end, !which.Failed)
		if err != nil {
			return nil, 0, err
		}
		var full bool
		if list, full = which.add(list, page); full {
			return list, list[len(list)-1].place(), nil
		}
		if len(page) > 0 && page[len(page)-1].Started.Add(streams.WebhookWait).Before(which.Since) {
			return list, 0, nil
		}
		if end = begin; len(page) < windowFull {
			window = min(2*window, logWindow)
		}
	}
	return list, end << indexBits, nil
}

// add appends the wanted ones of a page, the last one first, and reports
// whether one more would have been too many.
func (which DeliveriesOf) add(list, page []Delivery) ([]Delivery, bool) {
	for _, d := range slices.Backward(page) {
		switch {
		case d.Started.Before(which.Since):
		case which.Failed && d.Outcome == Delivered:
		case which.Before > 0 && d.place() >= which.Before:
		case len(list) == which.Most:
			return list, true
		default:
			list = append(list, d)
		}
	}
	return list, false
}

// deliveriesOfJob reads what the log has by the job, and where it would be if
// it succeeded at once.
func (q *Queue) deliveriesOfJob(ctx context.Context, endpoint string, which DeliveriesOf) (list []Delivery, next uint64, err error) {
	all, err := q.deliveriesIn(ctx, streams.DeliveryFilter(endpoint, which.Job), 1, 1<<52, true)
	if err != nil {
		return nil, 0, err
	}
	if subject := streams.FirstTriesSubject(endpoint, which.Job); subject != "" {
		err = q.eachFirstTry(ctx, subject, 1, func(d Delivery) {
			if d.Job == which.Job {
				all = append(all, d)
			}
		})
	}
	if err != nil {
		return nil, 0, err
	}
	slices.SortFunc(all, func(a, b Delivery) int { return cmp.Compare(a.place(), b.place()) })
	all = slices.CompactFunc(all, func(a, b Delivery) bool { // logged again, since an answer was lost
		return a.Try == b.Try && a.Attempt == b.Attempt && a.Started.Equal(b.Started)
	})
	list, full := which.add(nil, all)
	if full {
		next = list[len(list)-1].place()
	}
	return list, next, nil
}

// deliveriesIn reads those of the sequences from begin up to end.
func (q *Queue) deliveriesIn(ctx context.Context, filter string, begin, end uint64, firsts bool) ([]Delivery, error) {
	var page []Delivery
	err := q.eachLogged(ctx, filter, begin, end, func(m *nats.Msg) (err error) {
		subject := m.Header.Get("Nats-Subject")
		if endpoint, ok := streams.ParseFirstTries(subject); ok {
			if firsts {
				page, err = appendFirstTries(page, endpoint, m.Data, bus.Sequence(m))
			}
			return err
		}
		d, err := deliveryOf(subject, m.Data, bus.Sequence(m))
		page = append(page, d)
		return err
	})
	return page, err
}

// eachLogged reads messages of the log from the sequence begin up to end.
func (q *Queue) eachLogged(ctx context.Context, filter string, begin, end uint64, each func(*nats.Msg) error) error {
	for begin < end {
		got, err := q.batchGet(ctx, streams.Deliveries, filter, begin, int(min(end-begin, 1000)))
		if err != nil || len(got) == 0 {
			return err
		}
		for _, m := range got {
			if begin = bus.Sequence(m) + 1; begin > end {
				return nil
			}
			if err := each(m); err != nil {
				return err
			}
		}
	}
	return nil
}
