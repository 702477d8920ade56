package autoscaler

import (
	"testing"
	"time"

	"flightline/shared/registry"
)

func TestAWorkerIsReplacedWhoseHandlerGoesOnWithAJobThatEnded(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	m := &endpointState{}
	for _, look := range []struct {
		after time.Duration
		stale []string
		want  time.Duration
	}{
		{0, []string{"a"}, 0},
		{30 * time.Second, []string{"a", "b"}, 30 * time.Second},
		{40 * time.Second, []string{"b"}, 10 * time.Second}, // one after the other
		{50 * time.Second, nil, 0},
		{60 * time.Second, []string{"b"}, 0},
		{119 * time.Second, []string{"b"}, 59 * time.Second},
		{120 * time.Second, []string{"b"}, time.Minute},
	} {
		now, next := noon.Add(look.after), map[staleJob]time.Time{}
		got := m.staleFor("w", registry.Worker{Stale: look.stale}, next, now)
		if m.stale = next; got != look.want {
			t.Errorf("after %s: got %s, want %s", look.after, got, look.want)
		}
		if why := leaves(registry.Token{}, got, now); (why != "") != (look.want >= time.Minute) {
			t.Errorf("after %s: got %q", look.after, why)
		}
	}
}
