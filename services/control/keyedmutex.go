package control

import (
	"context"
	"sync"
)

// keyedMutex is a mutex for each key. The zero value is ready.
type keyedMutex struct{ locked sync.Map } // by key: a channel that is closed when it is unlocked

// Lock locks the key, or returns ctx.Err().
func (m *keyedMutex) Lock(ctx context.Context, key string) (unlock func(), err error) {
	mine := make(chan struct{})
	for {
		held, taken := m.locked.LoadOrStore(key, mine)
		if !taken {
			return func() {
				m.locked.Delete(key)
				close(mine)
			}, nil
		}
		select {
		case <-held.(chan struct{}): // nothing else is stored
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
