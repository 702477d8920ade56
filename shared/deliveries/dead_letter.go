package deliveries

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/record"
	"flightline/streams"
)

// Reason is why a task is among the dead letters.
type Reason string

// The reasons.
const (
	// ReasonGivenUp: all attempts failed.
	ReasonGivenUp Reason = "given up"
	// ReasonPaused: its destination was paused.
	ReasonPaused Reason = "paused"
)

const (
	reasonHeader      = "Flightline-Reason"
	destinationHeader = "Flightline-Destination"
	// deadLetterPage is how many dead letters are moved at a time, each of up to
	// half a megabyte, deadLetterBytes how large they are together: more might not
	// come in time on a slow line.
	deadLetterPage, deadLetterBytes = 32, 2 << 20
)

// DeadLetter moves the task to the dead letters, where it stays for Redrive until
// it would have expired in the queue. It is idempotent. It returns
// bus.ErrUnavailable: then the task is still in the queue.
func (c *Task) DeadLetter(ctx context.Context, why Reason, destination string) error {
	_, err := c.DeadLetterIf(ctx, why, destination, nil)
	return err
}

// DeadLetterIf is DeadLetter for a reason that may have ended. It calls holds
// when the task is in both places: a Redrive before that may miss the dead
// letter, a later one finds it. If the reason has ended, or that is unknown, kept
// is false and the task is only in the queue.
func (c *Task) DeadLetterIf(ctx context.Context, why Reason, destination string, holds func(context.Context) (bool, error)) (kept bool, err error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	seq, err := c.copyToDeadLetters(ctx, why, destination)
	if err != nil || seq == 0 {
		return err == nil, err
	}
	if holds != nil {
		ok, err := holds(ctx)
		if err == nil && !ok {
			err = c.s.bus.Remove(ctx, streams.Undelivered, seq)
		} else if err != nil {
			c.s.q.Reach(queue.BeforeDelete)
			c.s.bus.Delete(ctx, streams.Undelivered, seq) // else it may be sent twice
		}
		if err != nil || !ok {
			return false, err
		}
	}
	if c.numbered() {
		_ = c.msg.Ack()
	}
	return true, nil
}

// copyToDeadLetters stores the task as a dead letter and returns its sequence, 0
// if another process has moved or delivered it.
func (c *Task) copyToDeadLetters(ctx context.Context, why Reason, destination string) (uint64, error) {
	m, err := c.read(ctx)
	if errors.Is(err, bus.ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	subject := streams.UndeliveredSubject(c.Job.Endpoint, c.Job.ID, c.Job.Attempt)
	kept := c.s.carried(subject, m.Header, m.Data, c.Job.Finished)
	kept.Header.Set(reasonHeader, string(why))
	kept.Header.Set(destinationHeader, destination)
	seq, err := c.s.put(ctx, streams.Undelivered, kept)
	if err != nil {
		return 0, fmt.Errorf("keep the webhook of job %s: %w", c.Job.ID, err)
	}
	return seq, nil
}

// carried returns a task's message for another stream, without the server's
// headers. It expires when it would have expired in the first stream.
func (s *Store) carried(subject string, header nats.Header, data []byte, finished time.Time) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{}}
	for _, key := range []string{record.MetaHeader, record.ChangeHeader, replayHeader} {
		if values, found := header[key]; found {
			m.Header[key] = values
		}
	}
	m.Header.Set(jetstream.MsgTTLHeader, bus.MessageTTL(s.bus.Now(), finished.Add(streams.WebhooksAge)))
	return m
}

// put stores a message without a condition and returns its sequence.
func (s *Store) put(ctx context.Context, stream string, m *nats.Msg) (uint64, error) {
	return bus.UntilAnswered(ctx, func() (uint64, error) {
		server := s.bus.Conn().ConnectedServerId()
		seq, err := s.bus.Store(ctx, stream, m)
		if err == nil {
			err = s.bus.WaitDurable(ctx, stream, server)
		}
		return seq, err
	})
}

// RedriveQuery selects an endpoint's dead letters. A zero field matches all.
type RedriveQuery struct {
	Job job.ID
	// Since leaves out older dead letters, in server time.
	Since       time.Time
	Reason      Reason
	Destination string
}

func (f RedriveQuery) matches(m *nats.Msg) bool {
	at, err := bus.StoredAt(m)
	return (f.Since.IsZero() || err == nil && !at.Before(f.Since)) &&
		(f.Reason == "" || f.Reason == Reason(m.Header.Get(reasonHeader))) &&
		(f.Destination == "" || f.Destination == m.Header.Get(destinationHeader))
}

// Redrive moves the dead letters that an endpoint ("" for all) has now back to the
// queue and returns how many. A task that was given up starts with its first try
// again; if that fails meanwhile, the new dead letter stays. It returns
// bus.ErrUnavailable with the number so far, and may be repeated.
func (s *Store) Redrive(ctx context.Context, endpoint string, which RedriveQuery) (int, error) {
	count := 0
	until := time.Now().Add(ackGrace)
	filter := streams.UndeliveredFilter(endpoint, which.Job)
	within, cancel := bus.Bounded(ctx)
	newest, err := s.bus.LastSequence(within, streams.Undelivered, filter)
	cancel()
	if err != nil {
		return 0, err
	}
	for from := uint64(1); from <= newest; {
		page, err := s.deadLettersFrom(ctx, from, filter)
		if err != nil || len(page) == 0 {
			return count, err
		}
		for _, m := range page {
			seq := bus.Sequence(m)
			from = seq + 1
			if seq > newest || !which.matches(m) {
				continue
			}
			queued, err := s.replay(ctx, m, until)
			if errors.Is(err, record.ErrDamaged) { // it must not hold up all others
				s.log.ErrorContext(ctx, "a webhook that cannot be read was not replayed", "subject", bus.SubjectOf(m), "err", err)
				continue
			}
			if err != nil {
				return count, err
			}
			if queued {
				count++
			}
		}
	}
	return count, nil
}

// deadLettersFrom returns a page of dead letters from a sequence on, none at the
// end.
func (s *Store) deadLettersFrom(ctx context.Context, from uint64, filter string) ([]*nats.Msg, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	return s.bus.LeaderBatch(ctx, streams.Undelivered, bus.Batch{From: from, Filter: filter, Most: deadLetterPage, MaxBytes: deadLetterBytes})
}

// replay moves one dead letter back and reports whether it is in the queue now. A
// task that an earlier replay of this dead letter queued, and that is still to be
// tried, counts; any other is about to leave, and the dead letter stays.
func (s *Store) replay(ctx context.Context, m *nats.Msg, until time.Time) (bool, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	r, err := parseTask(bus.SubjectOf(m), m.Header, 0)
	if err != nil {
		return false, err
	}
	again := s.carried(streams.WebhookSubject(r.Endpoint, r.ID, r.Attempt), m.Header, m.Data, r.Finished)
	letter := strconv.FormatUint(bus.Sequence(m), 10)
	again.Header.Set(triedHeader, letter)
	if Reason(m.Header.Get(reasonHeader)) == ReasonGivenUp {
		again.Header.Set(replayHeader, nuid.Next())
	}
	there, err := s.republishTask(ctx, again, until)
	if err != nil {
		return false, fmt.Errorf("replay the webhook of job %s: %w", r.ID, err)
	}
	if there != nil && there.Header.Get(triedHeader) != letter {
		return false, nil
	}
	return true, s.bus.Remove(ctx, streams.Undelivered, bus.Sequence(m))
}

// republishTask queues a replay. A task of the same attempt that the log has
// ended, but that stayed longer than an ack takes, has lost its process and is
// replaced. A task that is still to be tried stays and is returned.
func (s *Store) republishTask(ctx context.Context, m *nats.Msg, until time.Time) (there *bus.Message, err error) {
	err = s.publishTask(ctx, m, until)
	if !errors.Is(err, bus.ErrConflict) {
		return nil, err
	}
	there, err = s.readQueued(ctx, m.Subject)
	if errors.Is(err, bus.ErrNoMessage) {
		there, err = &bus.Message{}, nil
	} else if err == nil {
		var over bool
		if over, err = s.over(ctx, there); err == nil && !over {
			return there, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if _, err = s.bus.Publish(ctx, streams.Webhooks, m, there.Seq); errors.Is(err, bus.ErrConflict) {
		err = fmt.Errorf("%w: %w", bus.ErrUnavailable, err)
	}
	return nil, err
}

// over reports whether the log has ended a message of the work queue.
func (s *Store) over(ctx context.Context, m *bus.Message) (bool, error) {
	c := &Task{Replay: m.Header.Get(replayHeader), s: s}
	var err error
	if c.Job.Endpoint, c.Job.ID, c.Job.Attempt, err = streams.ParseWebhook(m.Subject); err != nil {
		return false, err
	}
	last, err := s.Last(ctx, c)
	return err == nil && last.Seq != 0 && last.Replay == c.Replay && last.Outcome != Failed, err
}
