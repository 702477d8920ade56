package gateway

import (
	"sync"
	"time"
)

// mostRecent bounds what is remembered of workers.
const mostRecent = 50_000

// recent remembers when something was last so of a worker, for as long as keep.
type recent struct {
	keep time.Duration

	mu sync.Mutex
	at map[string]time.Time // by endpoint and worker
}

func newRecent(keep time.Duration) *recent { return &recent{keep: keep, at: map[string]time.Time{}} }

// last is when it was so, if that is not longer ago than keep.
func (r *recent) last(key string, now time.Time) (at time.Time, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, known = r.at[key]
	return at, known && now.Sub(at) < r.keep
}

// add remembers that it is so now, unless too much is remembered already.
func (r *recent) add(key string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.at) >= mostRecent {
		for k, at := range r.at {
			if now.Sub(at) >= r.keep {
				delete(r.at, k)
			}
		}
	}
	if _, known := r.at[key]; known || len(r.at) < mostRecent {
		r.at[key] = now
	}
}
