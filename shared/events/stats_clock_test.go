package events

import (
	"context"
	"testing"
	"time"

	"flightline/shared/stats"
)

// The server's clock is set back by hours: what happens is counted as before.
func TestStatsGoOnAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l, c := open(t, b), newClock(noon.Add(5*time.Hour))
	looks := func(context.Context) ([]stats.Sample, error) {
		return []stats.Sample{{Endpoint: "ep", Workers: 3}}, nil
	}
	f := newFold(l, Counting{Now: c.now, Sample: looks})
	for n := range 2 {
		if err := l.Append(t.Context(), runs("ep", n, "")...); err != nil {
			t.Fatal(err)
		}
		if err := foldAll(t, f, c); err != nil {
			t.Fatal(err)
		}
		c.advance(-4 * time.Hour)
	}
	points, err := l.Points(t.Context(), "ep", noon, noon.Add(2*time.Hour), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	completed, workers := int64(0), 0
	for _, p := range points {
		completed, workers = completed+p.Completed, max(workers, p.Workers)
	}
	if completed != 2 || workers != 3 {
		t.Errorf("got %d completed and %d workers, want 2 and 3", completed, workers)
	}
}
