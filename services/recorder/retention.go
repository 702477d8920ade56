package recorder

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/queue"
	"flightline/shared/retry"
)

const (
	// removalInterval is the pause between two looks for what is due.
	removalInterval = 250 * time.Millisecond
	// maxConcurrentRemovals bounds the records removed side by side.
	maxConcurrentRemovals = 32
	// removalBatch bounds what is taken out of the heap together.
	removalBatch = 1024
	// removalRetryDelay is the pause before a record that could not go yet is tried
	// again.
	removalRetryDelay = 5 * time.Second
)

// retention knows when which record is to be removed. An entry is a guess: a
// record that was written since, or is gone, is left alone by queue.RemoveRecord.
type retention struct {
	s  *Service
	mu sync.Mutex
	at dues
}

// due is when one write of a record may go. There may be a million.
type due struct {
	at        int64 // Unix milliseconds, server time
	seq       uint64
	partition int32
}

func newRetention(s *Service) *retention { return &retention{s: s} }

// add has the record of a finished attempt removed when its time has come.
func (r *retention) add(f queue.RecordChange) {
	r.push(due{at: r.s.queue.RemovableAt(&f.Job).UnixMilli(), seq: f.Seq, partition: int32(f.Partition)}) //nolint:gosec // partitions are few
}

func (r *retention) push(d due) {
	r.mu.Lock()
	defer r.mu.Unlock()
	heap.Push(&r.at, d)
}

// dropAfter drops what is known of a partition's writes after a sequence.
func (r *retention) dropAfter(partition int, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = slices.DeleteFunc(r.at, func(d due) bool { return int(d.partition) == partition && d.seq > seq })
	heap.Init(&r.at)
}

// ready takes out what is due at now and recorded for good. What is due but
// not recorded yet is put back for later.
func (r *retention) ready(now time.Time) []due {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []due
	for len(r.at) > 0 && len(list) < removalBatch && r.at[0].at <= now.UnixMilli() {
		d := heap.Pop(&r.at).(due)
		if d.seq > r.s.parts[d.partition].saved.Load() {
			d.at = now.Add(positionInterval).UnixMilli()
			heap.Push(&r.at, d)
			continue
		}
		list = append(list, d)
	}
	return list
}

// run removes what is due until ctx ends.
func (r *retention) run(ctx context.Context) error {
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
func (r *retention) remove(ctx context.Context, list []due) {
	var g errgroup.Group
	g.SetLimit(maxConcurrentRemovals)
	for _, d := range list {
		g.Go(func() error {
			r.s.point(BeforeForget)
			done, err := r.s.queue.RemoveRecord(ctx, int(d.partition), d.seq)
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

// errRecalled ends a recall.
var errRecalled = errors.New("recorder: recalled all")

// recall reads the records up to a write that were recorded in earlier terms,
// to know when they are to be removed.
func (s *Service) recall(ctx context.Context, partition int, upTo uint64, keep *retention) error {
	if upTo == 0 {
		return nil
	}
	err := s.queue.Changes(ctx, partition, 0, func(f queue.RecordChange) error {
		if f.Seq > upTo {
			return errRecalled
		}
		if f.Job.Status.Terminal() {
			keep.add(f)
		}
		return nil
	})
	if errors.Is(err, errRecalled) {
		return nil
	}
	return err
}

// dues is a heap with the earliest on top.
type dues []due

func (h dues) Len() int           { return len(h) }
func (h dues) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dues) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dues) Push(x any)        { *h = append(*h, x.(due)) }

func (h *dues) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
