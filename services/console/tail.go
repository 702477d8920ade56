package console

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"flightline/shared/retry"
)

const (
	// tailShown is how much of the last a tail keeps.
	tailShown = 200
	// tailIdle is how long a tail goes on that nobody looks at.
	tailIdle = 30 * time.Second
	// tailPatience is how long the first look waits for what there is already. An open page
	// shows what comes later.
	tailPatience = 80 * time.Millisecond
)

// tails has the last events, or lines, of what open pages show: they are read once, as they
// come.
type tails[T any] struct {
	mu   sync.Mutex
	list map[tailID]*tail[T]
}

// tailID names a tail: what a key sees of an endpoint, narrowed to a type, a worker or a job.
type tailID struct{ apiKey, endpoint, of string }

func newTails[T any]() *tails[T] { return &tails[T]{list: map[tailID]*tail[T]{}} }

// tail has the last of what a stream brings.
type tail[T any] struct {
	begun chan struct{} // closed with the first one, or the end

	mu     sync.Mutex
	last   []T // the oldest first
	asked  time.Time
	looked bool // a look has waited for what there was already
	err    error
	signal sync.Once
}

// lastOfTail returns the last of a tail, the oldest first. The tail begins with the first
// look, by calling follow, and ends some time after the last one.
func lastOfTail[T any](v *visit, all *tails[T], id tailID, follow func(context.Context) iter.Seq2[T, error]) ([]T, error) {
	all.mu.Lock()
	t := all.list[id]
	if t == nil {
		t = &tail[T]{begun: make(chan struct{})}
		all.list[id] = t
		all.mu.Unlock()
		began := v.s.start(v.ctx, func(ctx context.Context) {
			t.run(ctx, follow)
			all.drop(id)
		})
		if !began {
			all.drop(id)
			return nil, v.ctx.Err()
		}
	} else {
		all.mu.Unlock()
	}
	return t.look(v.ctx)
}

func (all *tails[T]) drop(id tailID) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.list, id)
}

// run reads until nobody has looked for a while, or the stream breaks off.
func (t *tail[T]) run(ctx context.Context, follow func(context.Context) iter.Seq2[T, error]) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer t.signal.Do(func() { close(t.begun) })
	idle := time.AfterFunc(tailIdle, func() { t.endIfIdle(stop) })
	defer idle.Stop()
	for next, err := range follow(ctx) {
		t.add(next, err)
		t.signal.Do(func() { close(t.begun) })
	}
}

// endIfIdle ends the tail, or looks again later if somebody has looked at it.
func (t *tail[T]) endIfIdle(stop context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left := tailIdle - time.Since(t.asked); left > 0 {
		time.AfterFunc(left, func() { t.endIfIdle(stop) })
		return
	}
	stop()
}

func (t *tail[T]) add(next T, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err = err; err != nil {
		return
	}
	if t.last = append(t.last, next); len(t.last) > 2*tailShown {
		t.last = slices.Clone(t.last[len(t.last)-tailShown:])
	}
}

// look lets a tail that just began find what there is.
func (t *tail[T]) look(ctx context.Context) ([]T, error) {
	t.mu.Lock()
	t.asked = time.Now()
	looked := t.looked
	t.mu.Unlock()
	if !looked {
		t.await(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looked = true
	if t.err != nil && len(t.last) == 0 && !errors.Is(t.err, context.Canceled) {
		return nil, t.err
	}
	return slices.Clone(t.last[max(0, len(t.last)-tailShown):]), nil
}

// await waits a moment for the first one, and those that come with it.
func (t *tail[T]) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tailPatience)
	defer cancel()
	select {
	case <-t.begun:
		_ = retry.Sleep(ctx, tailPatience/10)
	case <-ctx.Done():
	}
}
