package queue

import (
	"math"
	"time"

	"flightline/shared/job"
)

// The bounds of a key's quota, as the API names them.
const (
	fieldWaitingBytes = "waitingBytes"
	fieldWaitingJobs  = "waitingJobs"
)

// keyUse is what one key has at all endpoints, as the histories of the rooms say.
type keyUse struct {
	waiting load
	limit   load // of the last submission
	refused bool // since the last round of measurements
}

// full returns a *FullError if the quota has no room for size.
func (k *keyUse) full(size load) error {
	switch after := k.waiting.plus(size); {
	case after.bytes > k.limit.bytes:
		return &FullError{Field: fieldWaitingBytes, Size: size.bytes, Used: k.waiting.bytes, Limit: k.limit.bytes}
	case after.jobs > k.limit.jobs:
		return &FullError{Field: fieldWaitingJobs, Size: size.jobs, Used: k.waiting.jobs, Limit: k.limit.jobs}
	}
	return nil
}

// admitKey counts a submission for the caller's key, or returns a *FullError; mu
// must be held. Nobody is refused while queues cannot be measured: jobs may have
// ended.
func (s *rooms) admitKey(r *room, by job.Caller, size load, now time.Time) error {
	if by.Key == "" {
		return nil
	}
	k := s.keys[by.Key]
	if k == nil {
		k = &keyUse{}
		s.keys[by.Key] = k
	}
	k.limit = load{bound(by.MaxBytes), bound(by.MaxJobs)}
	if err := k.full(size); err != nil && now.Sub(s.answered) < maxRefusalAge {
		k.refused = true
		return err
	}
	k.waiting = k.waiting.plus(size)
	r.history.add(by.Key, size, now)
	return nil
}

// bound is the value of a quota, of which 0 means none.
func bound(n int64) int64 {
	if n == 0 {
		return math.MaxInt64
	}
	return n
}

// drop takes what is no longer waiting from a key; mu must be held.
func (s *rooms) drop(key string, l load) {
	k := s.keys[key]
	if k == nil {
		return
	}
	if k.waiting = k.waiting.minus(l); k.waiting == (load{}) {
		delete(s.keys, key)
	}
}

// near are the keys that were refused, or use more than half of their quota; mu
// must be held.
func (s *rooms) near() map[string]keyUse {
	near := map[string]keyUse{}
	for id, k := range s.keys {
		if k.waiting == (load{}) { // it was refused before anything was accepted
			delete(s.keys, id)
		}
		if k.refused || k.waiting.over(k.limit, 2) {
			near[id] = *k
			k.refused = false
		}
	}
	return near
}

// dueFor reports whether a queue has to be measured because of what keys have
// there: at once after a refusal.
func (r *room) dueFor(near map[string]keyUse, now time.Time) bool {
	age := now.Sub(r.measured)
	if len(r.history.slices) > 0 && age >= maxMeasureAge {
		return true
	}
	for id, k := range near {
		if (k.refused || r.asked > 0 || age >= crowdedMeasureAge) && r.history.holds(id) {
			return true
		}
	}
	return false
}
