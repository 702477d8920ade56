package stats

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"
)

// A bucket is one sixteenth of a power of two wide, and one millisecond below 16 ms.
const (
	bucketBits  = 4
	linearSteps = 1 << bucketBits
	// maxBucket is the bucket of the longest time, 292 years in milliseconds.
	maxBucket = (63-bucketBits)*linearSteps + 2*linearSteps - 1
)

// Histogram counts lengths of time in buckets of milliseconds that grow with them, so
// that a quantile is wrong by 3.2 % at most, and right to the millisecond below 16 ms.
// Histograms can be added up. The zero value is empty.
type Histogram struct {
	counts map[int]int64 // by bucket
}

// Add counts a length of time. A negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	if h.counts == nil {
		h.counts = map[int]int64{}
	}
	h.counts[bucketOf(d.Milliseconds())]++
}

// Merge adds what another histogram has counted.
func (h *Histogram) Merge(other Histogram) {
	if len(other.counts) == 0 {
		return
	}
	if h.counts == nil {
		h.counts = make(map[int]int64, len(other.counts))
	}
	for bucket, n := range other.counts {
		h.counts[bucket] += n
	}
}

// Count is how many lengths were added.
func (h Histogram) Count() (n int64) {
	for _, more := range h.counts {
		n += more
	}
	return n
}

// Quantile is the length that the share q of all, 0 to 1, does not exceed; 0 if the
// histogram is empty.
func (h Histogram) Quantile(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(h.Count())))
	var seen int64
	for _, bucket := range slices.Sorted(maps.Keys(h.counts)) {
		if seen += h.counts[bucket]; seen >= max(1, rank) {
			return time.Duration(middleOf(bucket)) * time.Millisecond
		}
	}
	return 0
}

// bucketOf is the bucket of a number of milliseconds.
func bucketOf(ms int64) int {
	if ms < linearSteps {
		return int(max(0, ms))
	}
	shift := bits.Len64(uint64(ms)) - bucketBits - 1
	return shift*linearSteps + int(ms>>shift)
}

// middleOf is the middle of a bucket, in milliseconds.
func middleOf(bucket int) int64 {
	if bucket < 2*linearSteps {
		return int64(bucket)
	}
	shift := bucket/linearSteps - 1
	lowest := int64(bucket-shift*linearSteps) << shift
	return lowest + int64(1)<<shift/2
}

// MarshalJSON writes a list of buckets and their counts in turns, in ascending order.
func (h Histogram) MarshalJSON() ([]byte, error) {
	list := make([]int64, 0, 2*len(h.counts))
	for _, bucket := range slices.Sorted(maps.Keys(h.counts)) {
		list = append(list, int64(bucket), h.counts[bucket])
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Histogram) UnmarshalJSON(data []byte) error {
	var list []int64
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	if len(list)%2 != 0 {
		return fmt.Errorf("stats: a histogram has %d numbers, want pairs", len(list))
	}
	h.counts = make(map[int]int64, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		if list[i] < 0 || list[i] > maxBucket || list[i+1] < 0 {
			return fmt.Errorf("stats: a histogram has bucket %d with count %d, want 0 to %d and no negative count", list[i], list[i+1], maxBucket)
		}
		h.counts[int(list[i])] += list[i+1]
	}
	return nil
}

// IsZero reports whether nothing was counted.
func (h Histogram) IsZero() bool { return len(h.counts) == 0 }
