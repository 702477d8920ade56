package console

import (
	"testing"
	"time"
)

// A page that is quick to load is loaded often enough to be current within a second, and one
// that is not costs at most 2 % of a core while nothing happens.
func TestTimesBetweenLoads(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ took, least, most time.Duration }{
		{time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond},
		{10 * time.Millisecond, 500 * time.Millisecond, 700 * time.Millisecond},
		{100 * time.Millisecond, 900 * time.Millisecond, 5 * time.Second},
		{time.Second, 900 * time.Millisecond, 10 * time.Second},
	} {
		if least, most := pausesAfter(tc.took); least != tc.least || most != tc.most {
			t.Errorf("after %v: got %v to %v, want %v to %v", tc.took, least, most, tc.least, tc.most)
		}
	}
}

// A screen that lists jobs may do so three times in a row; then it waits for its share.
func TestListsAreSpread(t *testing.T) {
	t.Parallel()
	var q listQuota
	now := time.Unix(1000, 0)
	var began []time.Duration
	for range 6 {
		began = append(began, now.Sub(time.Unix(1000, 0)))
		now = now.Add(max(q.wait(now), 300*time.Millisecond))
	}
	for i, want := range []time.Duration{0, 300 * time.Millisecond, 600 * time.Millisecond, 2 * time.Second, 4 * time.Second, 6 * time.Second} {
		if began[i] != want {
			t.Errorf("load %d: got %v, want %v", i, began[i], want)
		}
	}
	if now = now.Add(time.Minute); q.wait(now) > 0 {
		t.Error("after a quiet minute a load has to wait")
	}
}
