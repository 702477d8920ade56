package gateway

import (
	"sync"
	"time"
)

// maxLastSeen bounds how many workers a lastSeen remembers.
const maxLastSeen = 50_000

// lastSeen remembers for keep when something last held for a worker.
type lastSeen struct {
	keep time.Duration

	mu sync.Mutex
	at map[string]time.Time // by endpoint and worker
}

func newLastSeen(keep time.Duration) *lastSeen {
	return &lastSeen{keep: keep, at: map[string]time.Time{}}
}

// last returns when it last held, if that is within keep.
func (r *lastSeen) last(key string, now time.Time) (at time.Time, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, known = r.at[key]
	return at, known && now.Sub(at) < r.keep
}

// add notes that it holds now, unless maxLastSeen workers are remembered.
func (r *lastSeen) add(key string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.at) >= maxLastSeen {
		for k, at := range r.at {
			if now.Sub(at) >= r.keep {
				delete(r.at, k)
			}
		}
	}
	if _, known := r.at[key]; known || len(r.at) < maxLastSeen {
		r.at[key] = now
	}
}
