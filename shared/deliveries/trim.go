package deliveries

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/streams"
)

const (
	// trimBatch is how many dead letters are read at a time, trimBatches how often in one call:
	// the first call of a process may find 4 GiB of them.
	trimBatch, trimBatches = 1000, 16
)

// deadCopies are the copies of payloads that dead letters have, the oldest first.
type deadCopies struct {
	next uint64 // the first dead letter that was not looked at
	list []deadCopy
	size int64 // of all in the list, in bytes
}

// deadCopy is what one dead letter has.
type deadCopy struct {
	seq      uint64
	size     int64
	subjects []string // of the copies
}

// TrimUndelivered removes the oldest webhook tasks that were given up or wait for
// their destination if they take more than maxBytes, or if the copies of their large
// payloads do, and returns how many. They are never sent. Copies of tasks whose messages
// alone take too much stay until they expire. It is for one goroutine, and returns
// bus.ErrUnavailable.
func (s *Store) TrimUndelivered(ctx context.Context, maxBytes int64) (uint64, error) {
	removed, err := s.trim(ctx, streams.Undelivered, maxBytes)
	if err == nil {
		err = s.readCopies(ctx)
	}
	if err != nil || s.copies.size <= maxBytes {
		return removed, err
	}
	if err := s.forgetGone(ctx); err != nil {
		return removed, err
	}
	for s.copies.size > maxBytes/10*9 && len(s.copies.list) > 0 {
		if err := s.removeWithCopies(ctx, s.copies.list[0]); err != nil {
			return removed, err
		}
		s.copies.size -= s.copies.list[0].size
		s.copies.list = s.copies.list[1:]
		removed++
	}
	return removed, nil
}

// readCopies looks at the dead letters that came since the last call.
func (s *Store) readCopies(ctx context.Context) error {
	within, cancel := bus.Bounded(ctx)
	state, err := s.bus.StreamState(within, streams.Undelivered)
	cancel()
	if err != nil {
		return err
	}
	if state.LastSeq+1 < s.copies.next { // after a restore
		s.copies = deadCopies{}
	}
	for range trimBatches {
		within, cancel := bus.Bounded(ctx)
		page, err := s.bus.LeaderBatch(within, streams.Undelivered, bus.Batch{
			From: max(1, s.copies.next), Filter: streams.UndeliveredFilter("", ""), Most: trimBatch, MaxBytes: deadLetterBytes,
		})
		cancel()
		if err != nil || len(page) == 0 {
			return err
		}
		for _, m := range page {
			s.copies.add(m)
		}
	}
	return nil
}

// add adds the copies of a dead letter, none of what cannot be read.
func (c *deadCopies) add(m *nats.Msg) {
	kept := deadCopy{seq: bus.Sequence(m)}
	c.next = kept.seq + 1
	r, err := parseTask(bus.SubjectOf(m), m.Header, 0)
	if err != nil {
		return
	}
	for _, ref := range r.PayloadRefs() {
		kept.size += int64(ref.Size)
		kept.subjects = append(kept.subjects, ref.Subject)
	}
	if kept.size > 0 {
		c.list, c.size = append(c.list, kept), c.size+kept.size
	}
}

// forgetGone leaves out the dead letters that were sent again, expired or went with their
// endpoint.
func (s *Store) forgetGone(ctx context.Context) error {
	var failed error
	s.copies.list = slices.DeleteFunc(s.copies.list, func(kept deadCopy) bool {
		if failed != nil {
			return false
		}
		within, cancel := bus.Bounded(ctx)
		defer cancel()
		_, err := s.bus.LeaderAt(within, streams.Undelivered, kept.seq)
		if gone := errors.Is(err, bus.ErrNoMessage); err != nil && !gone {
			failed = err
		} else if gone {
			s.copies.size -= kept.size
			return true
		}
		return false
	})
	return failed
}

// removeWithCopies removes a dead letter, and its copies unless a redrive has just queued
// its task, which has the same.
func (s *Store) removeWithCopies(ctx context.Context, kept deadCopy) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	m, err := s.bus.LeaderAt(ctx, streams.Undelivered, kept.seq)
	if errors.Is(err, bus.ErrNoMessage) {
		return nil
	}
	if err == nil {
		err = s.bus.Remove(ctx, streams.Undelivered, kept.seq)
	}
	if err != nil {
		return err
	}
	endpoint, id, attempt, err := streams.ParseWebhook(m.Subject)
	if err != nil {
		return err
	}
	if _, err := s.bus.LeaderLast(ctx, streams.Webhooks, streams.WebhookSubject(endpoint, id, attempt)); !errors.Is(err, bus.ErrNoMessage) {
		return err
	}
	s.dropCopies(ctx, kept.subjects)
	return nil
}
