package events

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

func TestOnlyWhatIsOnTheDiskIsTold(t *testing.T) {
	t.Parallel()
	l := open(t, newBus(t))
	gate := make(chan struct{}, 2)
	gate <- struct{}{} // where the watch begins
	gate <- struct{}{} // the first look
	tail := tail(t, l, func(ctx context.Context, _ string) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	v := watch(t, tail, Watching{Endpoint: "ep"})
	testenv.Eventually(t, "the first look", func() bool { return len(gate) == 0 })
	mustAppend(t, l, life("ep", "a")...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*pollInterval)
	defer cancel()
	if got, err := v.Next(ctx); len(got) > 0 || err != nil {
		t.Errorf("got %v, %v before it is on the disk", ids(got), err)
	}
	gate <- struct{}{}
	if got := v.some(t, 4); !slices.Equal(got, ids(life("ep", "a"))) {
		t.Errorf("got %q", got)
	}
}

// The place at which a watch begins may be sent to clients, who resume there.
func TestAWatchBeginsBehindWhatIsOnTheDisk(t *testing.T) {
	t.Parallel()
	l := open(t, newBus(t))
	mustAppend(t, l, life("ep", "a")...)
	lost := errors.New("the power is gone")
	asked := 0
	tail := NewTail(l, func(context.Context, string) error {
		asked++
		return lost
	})
	for name, w := range map[string]Watching{"now": {}, "since": {Since: time.Now().Add(-time.Hour)}} {
		w.Endpoint = "ep"
		if _, err := tail.Watch(t.Context(), w); !errors.Is(err, bus.ErrUnavailable) || !errors.Is(err, lost) {
			t.Errorf("%s: got %v, want %v", name, err, bus.ErrUnavailable)
		}
	}
	if asked != 2 || tail.watched() {
		t.Errorf("asked %d times, want 2; watched: %t, want not", asked, tail.watched())
	}
}
