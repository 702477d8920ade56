package control

import (
	"context"
	"sync"
)

// keyedMutex is a mutex for each key. The zero value is ready.
type keyedMutex struct {
	mu     sync.Mutex
	locked map[string]chan struct{} // closed when the key is unlocked
}

// Lock locks the key, or returns ctx.Err().
func (m *keyedMutex) Lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		held, unlock := m.tryLock(key)
		if unlock != nil {
			return unlock, nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryLock locks the key, or returns a channel that is closed when its holder unlocks it.
func (m *keyedMutex) tryLock(key string) (held <-chan struct{}, unlock func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if held, ok := m.locked[key]; ok {
		return held, nil
	}
	if m.locked == nil {
		m.locked = map[string]chan struct{}{}
	}
	mine := make(chan struct{})
	m.locked[key] = mine
	return nil, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locked, key)
		close(mine)
	}
}
