package recorder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/streams"
)

const (
	// maxBatch is how many changes are recorded together, and how many wait
	// for their turn.
	maxBatch = 512
	// linger is how long a change waits for others: the start and the end of a short
	// job become one change, and all share one fsync.
	linger = 25 * time.Millisecond
	// positionInterval is the pause between two checkpoints, positionPerAttempt what
	// it is at least for each attempt that they have to name.
	positionInterval, positionPerAttempt = 250 * time.Millisecond, 100 * time.Microsecond
	// maxUnread is how many entries of other partitions may be behind the checkpoint of
	// an idle one: the next session reads them, and until then they are not trimmed.
	maxUnread = 4096
	// maxConcurrentWebhooks bounds the webhooks announced side by side, maxConcurrentCopies those
	// among them whose payloads have to be copied, of up to 20 MB each.
	maxConcurrentWebhooks, maxConcurrentCopies = 16, 4
)

// writer records changes in the order they come.
type writer struct {
	s        *Service
	p        *partition
	removals *removalQueue
	// server acknowledged all since the checkpoint.
	server string
	log    *events.Appender
	inLog  loggedEvents
	// replayed is the last write that may have been recorded before this session.
	replayed uint64
	// unneededInputs are ended attempts whose large inputs are removed once their events
	// are on the disk: until then their webhooks may have to be announced again.
	unneededInputs []queue.RecordChange
}

func (w *writer) run(ctx context.Context, changes <-chan queue.RecordChange) error {
	tick := time.NewTimer(positionInterval)
	defer tick.Stop()
	var batch []queue.RecordChange // its room serves for the next one too
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case c := <-changes:
			batch = gather(ctx, append(batch[:0], c), changes)
			err = w.record(ctx, batch)
		case <-tick.C:
			err = w.savePosition(ctx)
			tick.Reset(max(positionInterval, time.Duration(len(w.inLog))*positionPerAttempt))
		}
		if err != nil {
			return err
		}
	}
}

// gather waits a little for further changes, and appends them to the batch.
func gather(ctx context.Context, batch []queue.RecordChange, changes <-chan queue.RecordChange) []queue.RecordChange {
	late := time.NewTimer(linger)
	defer late.Stop()
	for len(batch) < maxBatch {
		select {
		case c := <-changes:
			batch = append(batch, c)
		case <-late.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// record appends the events of a batch. What it appends must have happened for
// good: a write that the server acknowledged but a power loss takes back, or
// that this process read from a server that was restarted since, is not
// recorded.
func (w *writer) record(ctx context.Context, batch []queue.RecordChange) error {
	if err := w.durable(ctx, streams.Records(w.p.number)); err != nil {
		return err
	}
	last := batch[len(batch)-1].Seq
	plain, copying := splitByCopies(newest(batch))
	if err := w.recordChanges(ctx, plain, maxConcurrentWebhooks); err != nil {
		return err
	}
	if err := w.recordChanges(ctx, copying, maxConcurrentCopies); err != nil {
		return err
	}
	w.p.done.Store(last)
	if last >= w.replayed {
		w.replayed = math.MaxUint64
		w.inLog.forgetEnds()
	}
	w.s.point(AfterEvents)
	return nil
}

// recordChanges announces the ends among the changes that are not in the log, so many at
// once, and appends the events of all.
func (w *writer) recordChanges(ctx context.Context, changes []queue.RecordChange, atOnce int) error {
	if len(changes) == 0 {
		return nil
	}
	missing, ends, err := w.missing(ctx, changes)
	if err != nil {
		return err
	}
	if err := w.announce(ctx, ends, atOnce); err != nil {
		return err
	}
	w.s.point(AfterAnnounce)
	if err := w.log.Append(ctx, w.p.number, w.p.saved.Load(), missing...); err != nil {
		return err
	}
	for _, c := range changes {
		delete(w.p.announced, attemptOf(c))
		w.inLog.addChange(c)
		w.removals.add(c)
		if c.HasUnneededInput() {
			w.unneededInputs = append(w.unneededInputs, c)
		}
	}
	return nil
}

// missing lists the events of changes that are not in the log, and the changes whose end
// is among them.
func (w *writer) missing(ctx context.Context, changes []queue.RecordChange) (list []events.Event, ends []queue.RecordChange, err error) {
	for _, c := range changes {
		some, known := w.inLog.missing(c)
		if !known && c.EndSeq <= w.p.done.Load() {
			there, err := w.endIsLogged(ctx, c)
			if err != nil {
				return nil, nil, err
			}
			if there {
				some = nil
			}
		}
		if list = append(list, some...); len(some) > 0 && hasEnd(some) {
			ends = append(ends, c)
		}
	}
	return list, ends, nil
}

// endIsLogged reports whether the log has the end of an attempt whose ttl was changed
// afterwards. The recorder need not have seen the end itself, which the change
// replaced. Its entry is before those whose Entry.After has passed it.
func (w *writer) endIsLogged(ctx context.Context, c queue.RecordChange) (there bool, err error) {
	err = w.s.events.ScanSince(ctx, c.Job.Endpoint, "", c.Job.Finished.Add(-events.ClockSlack), func(entry events.Entry) bool {
		if c.EndSeq > 0 && entry.Partition >= 0 && entry.After >= c.EndSeq {
			return false
		}
		there = slices.ContainsFunc(entry.Events, func(e events.Event) bool {
			return e.Job == c.Job.ID && e.Attempt == c.Job.Attempt && e.Status.Terminal()
		})
		return !there
	})
	return there, err
}

// splitByCopies separates the jobs whose webhook needs copies of payloads. Copying takes
// long and may fail: what was recorded before it is not recorded again then. The changes
// of a job stay together, in their order.
func splitByCopies(changes []queue.RecordChange) (plain, copying []queue.RecordChange) {
	copies := map[job.ID]bool{}
	for _, c := range changes {
		if toAnnounce(c) && c.ExternalPayload {
			copies[c.Job.ID] = true
		}
	}
	if len(copies) == 0 {
		return changes, nil
	}
	for _, c := range changes {
		if copies[c.Job.ID] {
			copying = append(copying, c)
		} else {
			plain = append(plain, c)
		}
	}
	return plain, copying
}

// newest returns the last change of each attempt, in the memory of the batch.
func newest(batch []queue.RecordChange) []queue.RecordChange {
	last := make(map[attempt]int, len(batch))
	for i, c := range batch {
		last[attemptOf(c)] = i
	}
	changes := batch[:0]
	for i, c := range batch {
		if last[attemptOf(c)] == i {
			changes = append(changes, c)
		}
	}
	return changes
}

func toAnnounce(c queue.RecordChange) bool { return c.Job.Webhook != "" && ended(c) }

// announce queues the ends that a webhook asked for, before their events: an
// end whose event is there was announced, and may have been delivered since. So it
// asks once more whether another recorder has appended meanwhile. It begins none any
// more once one has failed, but lets those that are under way finish: the next try
// finds what they announced, and has less to do.
func (w *writer) announce(ctx context.Context, changes []queue.RecordChange, atOnce int) error {
	if !slices.ContainsFunc(changes, toAnnounce) {
		return nil
	}
	if err := w.log.Alone(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	var failed atomic.Bool
	queued := make([]bool, len(changes))
	for i := range changes {
		if !toAnnounce(changes[i]) || w.p.announced[attemptOf(changes[i])] {
			continue
		}
		g.Go(func() error {
			if failed.Load() {
				return nil
			}
			err := w.s.deliveries.Enqueue(ctx, changes[i])
			if queued[i] = err == nil; err != nil {
				failed.Store(true)
			}
			return err
		})
	}
	err := g.Wait()
	for i, c := range changes {
		if queued[i] {
			w.p.announced[attemptOf(c)] = true
		}
	}
	return err
}

// savePosition writes a checkpoint once the events are on the disk, and what only
// they made needless is gone.
func (w *writer) savePosition(ctx context.Context) error {
	if now := w.s.events.Server(); now != w.server && now != "" {
		return errRestarted // with nothing to save, too: what the server has may have gone back
	}
	c := events.Checkpoint{Records: w.p.done.Load(), Log: w.log.Last()}
	if c.Records == w.p.saved.Load() && c.Log-w.p.checkpoint.Log < maxUnread {
		return nil
	}
	c.Unfinished = w.inLog.checkpoint(w.s.queue.Now())
	if err := w.durable(ctx, streams.Events); err != nil {
		return err
	}
	for _, change := range w.unneededInputs {
		if err := w.s.queue.Changes.RemoveUnneededInput(ctx, change); err != nil {
			return err
		}
	}
	w.unneededInputs = nil
	err := w.s.events.SetCheckpoint(ctx, w.p.position(), c)
	if errors.Is(err, events.ErrTooLarge) { // the log behind the last checkpoint has them
		c.Log, c.Unfinished = w.p.checkpoint.Log, w.p.checkpoint.Unfinished
		err = w.s.events.SetCheckpoint(ctx, w.p.position(), c)
	}
	if err != nil {
		return err
	}
	w.p.noteSaved(c)
	w.s.point(AfterPosition)
	return nil
}

// errRestarted: what the server had acknowledged may be gone.
var errRestarted = errors.New("recorder: the server was restarted")

// durable returns once what was written to the stream is on the disk, if the
// server is still the one that acknowledged it.
func (w *writer) durable(ctx context.Context, stream string) error {
	if err := w.s.queue.Bus().Durable(ctx, stream); err != nil {
		return fmt.Errorf("wait for %s to be on the disk: %w", stream, err)
	}
	if w.s.events.Server() != w.server {
		return errRestarted
	}
	return nil
}
