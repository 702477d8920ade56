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
	// maxBatch is how many facts are recorded together, and how many wait
	// for their turn.
	maxBatch = 512
	// linger is how long a fact waits for others: a short job's start and end
	// become one fact, and an fsync is shared.
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

// writer records facts in the order they come.
type writer struct {
	s    *Service
	p    *partition
	keep *retention
	// server acknowledged all since the checkpoint.
	server string
	log    *events.Appender
	told   told
	// replayed is the last write that may have been recorded before this session.
	replayed uint64
	// spare are ended attempts whose large inputs may go once their events are
	// on the disk: until then their webhooks may have to be announced again.
	spare []queue.RecordChange
}

func (w *writer) run(ctx context.Context, facts <-chan queue.RecordChange) error {
	tick := time.NewTimer(positionInterval)
	defer tick.Stop()
	var batch []queue.RecordChange // its room serves for the next one too
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case f := <-facts:
			batch = gather(ctx, append(batch[:0], f), facts)
			err = w.record(ctx, batch)
		case <-tick.C:
			err = w.savePosition(ctx)
			tick.Reset(max(positionInterval, time.Duration(len(w.told))*positionPerAttempt))
		}
		if err != nil {
			return err
		}
	}
}

// gather waits a little for further facts, and appends them to the batch.
func gather(ctx context.Context, batch []queue.RecordChange, facts <-chan queue.RecordChange) []queue.RecordChange {
	late := time.NewTimer(linger)
	defer late.Stop()
	for len(batch) < maxBatch {
		select {
		case f := <-facts:
			batch = append(batch, f)
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
// that this process read from a server that was restarted since, is no
// fact.
func (w *writer) record(ctx context.Context, batch []queue.RecordChange) error {
	if err := w.durable(ctx, streams.Records(w.p.number)); err != nil {
		return err
	}
	last := batch[len(batch)-1].Seq
	light, heavy := byWeight(newest(batch))
	if err := w.recordAll(ctx, light, maxConcurrentWebhooks); err != nil {
		return err
	}
	if err := w.recordAll(ctx, heavy, maxConcurrentCopies); err != nil {
		return err
	}
	w.p.done.Store(last)
	if last >= w.replayed {
		w.replayed = math.MaxUint64
		w.told.forgetEnds()
	}
	w.s.point(AfterEvents)
	return nil
}

// recordAll announces the ends among the facts that are not in the log, so many at
// once, and appends the events of all.
func (w *writer) recordAll(ctx context.Context, facts []queue.RecordChange, atOnce int) error {
	if len(facts) == 0 {
		return nil
	}
	missing, ends, err := w.missing(ctx, facts)
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
	for _, f := range facts {
		w.told.add(f)
		if f.Job.Status.Terminal() {
			w.keep.add(f)
		}
		if f.SpareInput() {
			w.spare = append(w.spare, f)
		}
	}
	return nil
}

// missing lists the events of facts that are not in the log, and the facts whose end
// is among them.
func (w *writer) missing(ctx context.Context, facts []queue.RecordChange) (list []events.Event, ends []queue.RecordChange, err error) {
	for _, f := range facts {
		some, known := w.told.missing(f)
		if !known && f.EndSeq <= w.p.done.Load() {
			there, err := w.endIsThere(ctx, f)
			if err != nil {
				return nil, nil, err
			}
			if there {
				some = nil
			}
		}
		if list = append(list, some...); len(some) > 0 && over(some) {
			ends = append(ends, f)
		}
	}
	return list, ends, nil
}

// endIsThere looks in the log for the end of an attempt whose ttl was changed
// afterwards. The recorder need not have seen the end itself, which the change
// replaced. Its entry is before those whose Entry.After has passed it.
func (w *writer) endIsThere(ctx context.Context, f queue.RecordChange) (there bool, err error) {
	err = w.s.events.ScanSince(ctx, f.Job.Endpoint, "", f.Job.Finished.Add(-events.ClockSlack), func(entry events.Entry) bool {
		if f.EndSeq > 0 && entry.Partition >= 0 && entry.After >= f.EndSeq {
			return false
		}
		there = slices.ContainsFunc(entry.Events, func(e events.Event) bool {
			return e.Job == f.Job.ID && e.Attempt == f.Job.Attempt && e.Status.Terminal()
		})
		return !there
	})
	return there, err
}

// byWeight sets aside the jobs of which an end has payloads that its webhook
// needs copies of, which takes long and may fail: what was recorded before is not
// recorded again then. A job's facts stay together, in their order.
func byWeight(facts []queue.RecordChange) (light, heavy []queue.RecordChange) {
	weighs := map[job.ID]bool{}
	for _, f := range facts {
		if toAnnounce(f) && f.ExternalPayload {
			weighs[f.Job.ID] = true
		}
	}
	if len(weighs) == 0 {
		return facts, nil
	}
	for _, f := range facts {
		if weighs[f.Job.ID] {
			heavy = append(heavy, f)
		} else {
			light = append(light, f)
		}
	}
	return light, heavy
}

// newest leaves the last fact of each attempt, in the place of the batch.
func newest(batch []queue.RecordChange) []queue.RecordChange {
	last := make(map[attempt]int, len(batch))
	for i, f := range batch {
		last[attemptOf(f)] = i
	}
	facts := batch[:0]
	for i, f := range batch {
		if last[attemptOf(f)] == i {
			facts = append(facts, f)
		}
	}
	return facts
}

func toAnnounce(f queue.RecordChange) bool { return f.Job.Webhook != "" && ended(f) }

// announce queues the ends that a webhook asked for, before their events: an
// end whose event is there was announced, and may have been delivered since. So it
// asks once more whether another recorder has appended meanwhile. It begins none any
// more once one has failed, but lets those that are under way finish: the next try
// finds what they announced, and has less to do.
func (w *writer) announce(ctx context.Context, facts []queue.RecordChange, atOnce int) error {
	if !slices.ContainsFunc(facts, toAnnounce) {
		return nil
	}
	if err := w.log.Alone(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	var failed atomic.Bool
	for i := range facts {
		if !toAnnounce(facts[i]) {
			continue
		}
		g.Go(func() error {
			if failed.Load() {
				return nil
			}
			err := w.s.deliveries.Enqueue(ctx, facts[i])
			if err != nil {
				failed.Store(true)
			}
			return err
		})
	}
	return g.Wait()
}

// savePosition writes a checkpoint once the events are on the disk, and what only
// they made needless is gone.
func (w *writer) savePosition(ctx context.Context) error {
	c := events.Checkpoint{Records: w.p.done.Load(), Log: w.log.Last()}
	if c.Records == w.p.saved.Load() && c.Log-w.p.checkpoint.Log < maxUnread {
		return nil
	}
	c.Unfinished = w.told.checkpoint(w.s.queue.Now())
	if err := w.durable(ctx, streams.Events); err != nil {
		return err
	}
	for _, f := range w.spare {
		if err := w.s.queue.DropInput(ctx, f); err != nil {
			return err
		}
	}
	w.spare = nil
	err := w.s.events.SetCheckpoint(ctx, w.p.position(), c)
	if errors.Is(err, events.ErrTooLarge) { // the log behind the last checkpoint has them
		c.Log, c.Unfinished = w.p.checkpoint.Log, w.p.checkpoint.Unfinished
		err = w.s.events.SetCheckpoint(ctx, w.p.position(), c)
	}
	if err != nil {
		return err
	}
	w.p.save(c)
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
