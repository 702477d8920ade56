package registry

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	// unknownAge is how long a key that a bucket did not have is not asked for again.
	unknownAge = time.Second
	// unknownSlots bounds what is remembered; a key takes the slot of another.
	unknownSlots = 1024
)

// unknowns remembers which keys a bucket did not have. It is safe for concurrent
// use.
type unknowns struct {
	seed  maphash.Seed
	mu    sync.Mutex
	slots [unknownSlots]unknownKey
}

type unknownKey struct {
	key   string
	asked time.Time
}

func newUnknowns() *unknowns { return &unknowns{seed: maphash.MakeSeed()} }

func (u *unknowns) slot(key string) *unknownKey {
	return &u.slots[maphash.String(u.seed, key)%unknownSlots]
}

// has reports whether the bucket did not have the key when it was last asked, less
// than unknownAge ago.
func (u *unknowns) has(key string) bool {
	slot := u.slot(key)
	u.mu.Lock()
	defer u.mu.Unlock()
	return slot.key == key && time.Since(slot.asked) < unknownAge
}

// add notes that the bucket did not have the key. It keeps the string.
func (u *unknowns) add(key string) {
	slot := u.slot(key)
	u.mu.Lock()
	defer u.mu.Unlock()
	*slot = unknownKey{key, time.Now()}
}
