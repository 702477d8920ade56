package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/queue"
	"flightline/shared/wakeup"
)

const (
	// mostBetweenBeats bounds the pause between two heartbeats of a job: a
	// third of the shortest lease, so that an endpoint's lease may be made
	// shorter while jobs run.
	mostBetweenBeats = endpoint.MinLease / 3
	// beatRetryDelay is the pause after a heartbeat that NATS did not answer.
	beatRetryDelay = 250 * time.Millisecond
)

// heartbeat extends the lease of one run until it is stopped. It begins when
// the first beat is due, or when somebody else changed the record: most jobs
// are over before, and cost no goroutine.
type heartbeat struct {
	w     *worker
	lease *queue.Lease
	every time.Duration
	end   context.CancelCauseFunc // of the run
	moved chan limits             // the run's limits, if they may be others
	look  wakeup.Signal           // the record was changed
	first *time.Timer

	mu      sync.Mutex
	stopped bool
	cancel  context.CancelFunc // nil until it begins
	beating sync.WaitGroup
}

// heartbeat prepares one; alive outlives it. Stop it.
func (w *worker) heartbeat(alive context.Context, l *queue.Lease, end context.CancelCauseFunc) *heartbeat {
	h := &heartbeat{
		w: w, lease: l, every: min(w.endpoint.Lease/3, mostBetweenBeats), end: end,
		moved: make(chan limits, 1), look: wakeup.New(),
	}
	h.first = time.AfterFunc(h.every, func() { h.begin(alive) })
	return h
}

func (h *heartbeat) begin(alive context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped || h.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(alive)
	h.cancel = cancel
	h.beating.Go(func() { h.beat(ctx) })
}

// changed makes it beat at once.
func (h *heartbeat) changed(alive context.Context) {
	h.look.Send()
	h.begin(alive)
}

// stop returns once it has ended.
func (h *heartbeat) stop() {
	h.first.Stop()
	h.mu.Lock()
	h.stopped = true
	if h.cancel != nil {
		h.cancel()
	}
	h.mu.Unlock()
	h.beating.Wait()
}

// beat extends the lease now and from then on until ctx ends, and at once when
// somebody else changed the record. It reports moved limits, and ends the run
// when the lease is lost. That NATS does not answer ends nothing.
func (h *heartbeat) beat(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-h.look:
		case <-h.lease.Changed():
		}
		pause := h.every
		switch err := h.lease.Extend(ctx); {
		case err == nil:
			select {
			case <-h.moved: // not read yet, and old now
			default:
			}
			h.moved <- limitsOf(h.lease) // it has room: nobody else sends
		case ctx.Err() != nil:
			return
		case errors.Is(err, queue.ErrLost):
			h.end(h.w.whyLost(ctx, h.lease))
			return
		default:
			h.w.log.DebugContext(ctx, "heartbeat unanswered", "job", h.lease.Job.ID, "err", err)
			pause = min(h.every, beatRetryDelay)
		}
		next.Reset(pause)
	}
}
