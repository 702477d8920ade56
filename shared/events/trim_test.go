package events

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The oldest events go, but none that is not counted; a reader whose place is gone
// gets what is left.
func TestTrimRemovesTheOldestThatAreCounted(t *testing.T) {
	t.Parallel()
	l := open(t, newBus(t))
	for i := range 40 {
		mustAppend(t, l, life("ep", fmt.Sprintf("job-%d", i))...)
	}
	before := all(t, l)
	if removed, err := l.Trim(t.Context(), 1, 100); removed != 0 || err != nil {
		t.Errorf("nothing is counted: got %d removed, %v", removed, err)
	}
	const counted = 20
	if err := l.setPosition(t.Context(), countsPosition, counted+5); err != nil {
		t.Fatal(err)
	}
	if removed, err := l.Trim(t.Context(), 1, 100); removed != 0 || err != nil {
		t.Errorf("nothing is in STATS: got %d removed, %v", removed, err)
	}
	if err := l.setPosition(t.Context(), statsPosition, counted); err != nil {
		t.Fatal(err)
	}
	if removed, err := l.Trim(t.Context(), 1<<30, 100); removed != 0 || err != nil {
		t.Errorf("there is room: got %d removed, %v", removed, err)
	}
	const kept = 11
	if removed, err := l.Trim(t.Context(), 1, kept); removed != kept-1 || err != nil {
		t.Errorf("got %d removed, %v, want the %d before what is to stay", removed, err, kept-1)
	}
	if removed, err := l.Trim(t.Context(), 1, 100); removed != counted-kept+1 || err != nil {
		t.Errorf("got %d removed, %v, want the %d that are counted", removed, err, counted)
	}
	left := ids(before[4*counted:])
	if diff := cmp.Diff(left, ids(all(t, l))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	reader := watch(t, tail(t, l, nil), Watching{Endpoint: "ep", Resume: true, After: 10, Once: true})
	if diff := cmp.Diff(left, reader.some(t, 0)); diff != "" {
		t.Errorf("a reader whose place is gone: -want +got:\n%s", diff)
	}
}
