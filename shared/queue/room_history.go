package queue

import (
	"maps"
	"math"
	"slices"
	"time"

	"flightline/shared/job"
)

const (
	// maxSlices bounds the slices of a history; it is even.
	maxSlices = 64
	// minSliceWidth is the least width of a history that was merged.
	minSliceWidth = time.Millisecond
)

// history is what this process accepted at one endpoint and what may still wait
// or run, by time and key. Jobs are taken to end in the order in which they came.
type history struct {
	slices []slice // the oldest first, at most maxSlices
	// width is how long a slice lasts; 0 means that each submission has its own.
	width time.Duration
}

// slice is what came within the width of a history.
type slice struct {
	from, last time.Time // of the first and the last submission
	of         map[string]load
}

// add counts a submission of the key.
func (h *history) add(key string, size load, now time.Time) {
	n := len(h.slices)
	if n == 0 {
		h.width = 0
	}
	if n == 0 || now.Sub(h.slices[n-1].from) >= h.width {
		if n == maxSlices {
			h.merge()
		}
		h.slices = append(h.slices, slice{from: now, of: map[string]load{}})
	}
	newest := &h.slices[len(h.slices)-1]
	newest.last = now
	newest.of[key] = newest.of[key].plus(size)
}

// merge makes one slice of each two neighbours.
func (h *history) merge() {
	h.width = max(2*h.width, minSliceWidth)
	for i := range len(h.slices) / 2 {
		older, newer := h.slices[2*i], h.slices[2*i+1]
		for key, l := range newer.of {
			older.of[key] = older.of[key].plus(l)
		}
		older.last = newer.last
		h.slices[i] = older
	}
	h.slices = slices.Delete(h.slices, len(h.slices)/2, len(h.slices))
}

// trim removes what came before the time first, and the oldest until at most so
// many jobs are left. Within a slice all keys lose the same part. It calls drop with
// what each key lost.
func (h *history) trim(jobs int64, first time.Time, drop func(key string, l load)) {
	excess := -jobs
	for _, s := range h.slices {
		excess += s.jobs()
	}
	for len(h.slices) > 0 {
		oldest := h.slices[0]
		n := oldest.jobs()
		if excess < n && !oldest.last.Before(first) {
			oldest.shrink(max(0, excess), n, drop)
			return
		}
		oldest.shrink(n, n, drop)
		h.slices = slices.Delete(h.slices, 0, 1)
		excess -= n
		if len(h.slices) < maxSlices/4 {
			h.width /= 2
		}
	}
}

// jobs is how many came in the slice.
func (s slice) jobs() int64 {
	var n int64
	for _, l := range s.of {
		n += l.jobs
	}
	return n
}

// shrink removes gone of the n jobs, and as large a part of the bytes. What is
// rounded off at one key is taken from the next.
func (s slice) shrink(gone, n int64, drop func(key string, l load)) {
	part := func(of int64) int64 { return int64(math.Round(float64(of) / float64(n) * float64(gone))) } // a product may be beyond 64 bits
	var seen load
	for _, key := range slices.Sorted(maps.Keys(s.of)) {
		l := s.of[key]
		after := seen.plus(l)
		lost := load{part(after.bytes) - part(seen.bytes), part(after.jobs) - part(seen.jobs)}
		seen = after
		if lost != (load{}) {
			drop(key, lost)
			s.of[key] = l.minus(lost)
		}
	}
}

// holds reports whether anything of the key may still wait or run.
func (h *history) holds(key string) bool {
	return slices.ContainsFunc(h.slices, func(s slice) bool { return s.of[key].jobs > 0 })
}

// The bounds of a key's quota, as the API names them.
const (
	fieldWaitingBytes = "waitingBytes"
	fieldWaitingJobs  = "waitingJobs"
)

// keyUse is what one key has at all endpoints, as the histories of the queues have it.
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
func (s *usageTable) admitKey(r *queueUsage, by job.Caller, size load, now time.Time) error {
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
func (s *usageTable) drop(key string, l load) {
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
func (s *usageTable) near() map[string]keyUse {
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
func (r *queueUsage) dueFor(near map[string]keyUse, now time.Time) bool {
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
