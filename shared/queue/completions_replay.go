package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/streams"
)

// ReplayOf says which of an endpoint's kept completions are to be delivered
// after all. Zero fields do not matter.
type ReplayOf struct {
	Job job.ID
	// Since leaves out what was kept before it, in server time.
	Since       time.Time
	Reason      Reason
	Destination string
}

func (f ReplayOf) matches(m *nats.Msg) bool {
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	return (f.Since.IsZero() || err == nil && !at.Before(f.Since)) &&
		(f.Reason == "" || f.Reason == Reason(m.Header.Get(reasonHeader))) &&
		(f.Destination == "" || f.Destination == m.Header.Get(destinationHeader))
}

// ReplayKept queues kept completions of an endpoint ("" for all) once more and
// returns how many. Each begins anew: it has all its attempts before it. It
// returns ErrUnavailable with the number so far; it may be repeated.
func (q *Queue) ReplayKept(ctx context.Context, endpoint string, which ReplayOf) (int, error) {
	count := 0
	until := time.Now().Add(leaving)
	for from := uint64(1); ; {
		page, err := q.keptFrom(ctx, from, streams.UndeliveredFilter(endpoint, which.Job))
		if err != nil || len(page) == 0 {
			return count, err
		}
		for _, m := range page {
			from = bus.Sequence(m) + 1
			if !which.matches(m) {
				continue
			}
			queued, err := q.replay(ctx, m, until)
			if err != nil {
				return count, err
			}
			if queued {
				count++
			}
		}
	}
}

// keptFrom is a page of what is kept, from a sequence on, nothing at its end. A
// replica may lack the newest ones: the leader says whether it is the end.
func (q *Queue) keptFrom(ctx context.Context, from uint64, filter string) ([]*nats.Msg, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	page, err := untilAnswered(ctx, func() ([]*nats.Msg, error) {
		return q.batchGet(ctx, streams.Undelivered, filter, from, keptPage)
	})
	if err != nil || len(page) > 0 {
		return page, err
	}
	m, err := q.leaderNext(ctx, streams.Undelivered, filter, from)
	if errors.Is(err, errNoMessage) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []*nats.Msg{m.asBatch()}, nil
}

// replay moves one completion back, and reports whether it is there now. One that
// an earlier replay put there, and that is still to be tried, is as good; any
// other is on its way out, and takes no kept one with it.
func (q *Queue) replay(ctx context.Context, m *nats.Msg, until time.Time) (bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ep, id, attempt, err := streams.ParseCompletion(m.Header.Get("Nats-Subject"))
	if err != nil {
		return false, err
	}
	w, err := parseWire(m.Header.Get(metaHeader))
	if err != nil {
		return false, fmt.Errorf("decode job %s: %w", id, err)
	}
	again := q.carried(streams.WebhookSubject(ep, id, attempt), m.Header, m.Data, instant(w.Finished))
	again.Header.Set(triedHeader, "yes")
	if Reason(m.Header.Get(reasonHeader)) == GivenUp {
		again.Header.Set(replayHeader, nuid.Next())
	}
	there, err := q.queueAgain(ctx, again, until)
	if err != nil {
		return false, fmt.Errorf("replay the webhook of job %s: %w", id, err)
	}
	if there != nil && there.header.Get(triedHeader) == "" {
		return false, nil
	}
	return true, q.remove(ctx, streams.Undelivered, bus.Sequence(m))
}

// queueAgain puts a replay into the work queue. One of the same attempt that lies
// there for longer than what is done takes to leave, though the log says that
// it is delivered or given up, has lost its process and gives way. One that is
// still to be tried stays, and is returned.
func (q *Queue) queueAgain(ctx context.Context, m *nats.Msg, until time.Time) (there *stored, err error) {
	err = q.queueCompletion(ctx, m, until)
	if !errors.Is(err, errConflict) {
		return nil, err
	}
	there, err = q.leaderLast(ctx, streams.Webhooks, m.Subject)
	if errors.Is(err, errNoMessage) {
		there, err = &stored{}, nil
	} else if err == nil {
		var over bool
		if over, err = q.over(ctx, there); err == nil && !over {
			return there, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if _, err = q.publish(ctx, streams.Webhooks, m, nuid.Next(), there.seq); errors.Is(err, errConflict) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil, err
}

// over reports whether the log says of a message of the work queue that nobody
// is to try it any more.
func (q *Queue) over(ctx context.Context, m *stored) (bool, error) {
	c := &Completion{Replay: m.header.Get(replayHeader), q: q, tries: newFirstTries(q)}
	var err error
	if c.Job.Endpoint, c.Job.ID, c.Job.Attempt, err = streams.ParseCompletion(m.subject); err != nil {
		return false, err
	}
	last, err := q.LastDelivery(ctx, c)
	return err == nil && last.Seq != 0 && last.Replay == c.Replay && last.Outcome != DeliveryFailed, err
}
