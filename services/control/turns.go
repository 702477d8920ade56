package control

import (
	"context"
	"sync"
	"time"

	"flightline/shared/registry"
)

// turns let one caller at a time work on something, by its id. The zero value
// is ready.
type turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // closed at the end of a turn
}

// begin waits for the caller's turn, which lasts until done is called. It
// returns ctx.Err().
func (t *turns) begin(ctx context.Context, id string) (done func(), err error) {
	for {
		other, done := t.try(id)
		if done != nil {
			return done, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try begins a turn, or returns the end of the other's.
func (t *turns) try(id string) (other <-chan struct{}, done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if other, busy := t.busy[id]; busy {
		return other, nil
	}
	if t.busy == nil {
		t.busy = map[string]chan struct{}{}
	}
	mine := make(chan struct{})
	t.busy[id] = mine
	return nil, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.busy, id)
		close(mine)
	}
}

// outlive returns when nobody takes an endpoint that is made under the id now
// for one that was deleted a moment ago: no memory holds that one's secret any more.
func (s *Service) outlive(ctx context.Context, id string) error {
	deleted, err := s.registry.Endpoints.Deleted(ctx, id)
	if err != nil || deleted.IsZero() {
		return err
	}
	select {
	case <-time.After(min(registry.Trust, deleted.Add(registry.Trust).Sub(s.queue.Now()))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
