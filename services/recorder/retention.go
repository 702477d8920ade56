package recorder

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/retry"
)

const (
	// removalInterval is the pause between two searches for entries that are due.
	removalInterval = 250 * time.Millisecond
	// maxConcurrentRemovals bounds the records removed side by side.
	maxConcurrentRemovals = 32
	// removalBatch bounds what is taken out of the heap together.
	removalBatch = 1024
	// removalRetryDelay is the pause before a record that could not go yet is tried
	// again.
	removalRetryDelay = 5 * time.Second
)

// removalQueue has the records of attempts by the time of their removal. An
// entry may be out of date: queue.Changes.Remove leaves a record alone that was written
// since, or is gone.
type removalQueue struct {
	s       *Service
	mu      sync.Mutex
	entries dueHeap
}

// due is an entry: when the record that one write made may be removed. There may be a
// million, so it is small.
type due struct {
	at        int64 // Unix milliseconds, server time
	seq       uint64
	partition int32
}

func newRemovalQueue(s *Service) *removalQueue { return &removalQueue{s: s} }

// add schedules the removal of what an attempt leaves, if there is something.
func (r *removalQueue) add(c queue.RecordChange) {
	if !c.Removable {
		return
	}
	r.push(due{at: r.s.queue.Changes.RemovableAt(&c.Job).UnixMilli(), seq: c.Seq, partition: int32(c.Partition)}) //nolint:gosec // partitions are few
}

func (r *removalQueue) push(d due) {
	r.mu.Lock()
	defer r.mu.Unlock()
	heap.Push(&r.entries, d)
}

// dropAfter drops what is known of a partition's writes after a sequence.
func (r *removalQueue) dropAfter(partition int, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = slices.DeleteFunc(r.entries, func(d due) bool { return int(d.partition) == partition && d.seq > seq })
	heap.Init(&r.entries)
}

// ready takes out what is due at now and recorded for good. What is due but
// not recorded yet is put back for later.
func (r *removalQueue) ready(now time.Time) []due {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []due
	for len(r.entries) > 0 && len(list) < removalBatch && r.entries[0].at <= now.UnixMilli() {
		d := heap.Pop(&r.entries).(due)
		if d.seq > r.s.parts[d.partition].saved.Load() {
			d.at = now.Add(positionInterval).UnixMilli()
			heap.Push(&r.entries, d)
			continue
		}
		list = append(list, d)
	}
	return list
}

// run removes what is due until ctx ends.
func (r *removalQueue) run(ctx context.Context) error {
	for ctx.Err() == nil {
		list := r.ready(r.s.queue.Now())
		r.remove(ctx, list)
		if len(list) < removalBatch {
			_ = retry.Sleep(ctx, removalInterval)
		}
	}
	return nil
}

// remove removes the records of the list, or puts them back for later.
func (r *removalQueue) remove(ctx context.Context, list []due) {
	var g errgroup.Group
	g.SetLimit(maxConcurrentRemovals)
	for _, d := range list {
		g.Go(func() error {
			r.s.point(BeforeRemove)
			done, err := r.s.queue.Changes.Remove(ctx, int(d.partition), d.seq)
			if err != nil && ctx.Err() == nil {
				r.s.log.DebugContext(ctx, "record not removed yet", "partition", d.partition, "sequence", d.seq, "err", err)
			}
			if !done {
				d.at = r.s.queue.Now().Add(removalRetryDelay).UnixMilli()
				r.push(d)
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return nil
}

// errReloaded ends reloadRemovals.
var errReloaded = errors.New("recorder: all removals reloaded")

// reloadRemovals schedules the removal of all records that are recorded, in the
// background of g until stop is called or ctx ends. It also removes what a server that was
// killed has left of the jobs that were cancelled.
func (s *Service) reloadRemovals(ctx context.Context, g *errgroup.Group, removals *removalQueue) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	for i := range s.parts {
		p := &s.parts[i]
		upTo, began, passed := p.saved.Load(), s.queue.Now(), map[string]bool{}
		removals.dropAfter(p.number, 0)
		g.Go(func() error {
			err := s.queue.Changes.Follow(ctx, p.number, 0, func(c queue.RecordChange) error {
				switch {
				case c.Seq <= upTo:
					removals.add(c)
				case !c.Written.Before(began):
					return errReloaded
				}
				if c.Job.Status == job.Cancelled {
					s.dropLeft(ctx, c, passed)
				}
				return nil
			})
			if errors.Is(err, errReloaded) {
				return nil
			}
			return err
		})
	}
	return stop
}

// dropLeft removes the queue message of a cancelled job if it was left. passed are the
// endpoints whose queue was found empty, or could not be read: the next start looks again.
func (s *Service) dropLeft(ctx context.Context, c queue.RecordChange, passed map[string]bool) {
	id := c.Job.Endpoint
	pass, known := passed[id]
	var err error
	if !known {
		pass, err = s.queue.Counts.IsEmpty(ctx, endpoint.Endpoint{ID: id})
	}
	if err == nil && !pass {
		err = s.queue.Changes.DropLeft(ctx, c)
	}
	passed[id] = pass || err != nil
	if err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "queue messages of cancelled jobs not looked for", "endpoint", id, "job", c.Job.ID, "err", err)
	}
}

// dueHeap is a heap with the earliest on top.
type dueHeap []due

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(due)) }

func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
