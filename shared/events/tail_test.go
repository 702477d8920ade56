package events

import "testing"

// A full tail does not copy all that it remembers for each entry of the log: with the
// console open that was 3.5 MB for each.
func TestAFullTailTakesEventsWithoutAllocating(t *testing.T) {
	tail := NewTail(nil, nil)
	seq := uint64(0)
	add := func() {
		seq++
		tail.add([]Event{{Seq: seq}}, seq)
	}
	for range 2 * maxTailEvents {
		add()
	}
	if n := testing.AllocsPerRun(2*maxTailEvents, add); n > 1 {
		t.Errorf("got %v allocations for an event, want 1: what wakes the watchers", n)
	}
	v := &Watch{t: tail, after: seq - maxTailEvents}
	for next := v.after + 1; next <= seq; {
		some, _, _, behind := v.recent()
		if behind || len(some) == 0 {
			t.Fatalf("got %d events, behind %v, at %d of %d; want the last %d", len(some), behind, next, seq, maxTailEvents)
		}
		for _, e := range some {
			if e.Seq != next {
				t.Fatalf("got the event %d, want %d", e.Seq, next)
			}
			next++
		}
	}
	if n, most := len(tail.recent), maxTailEvents*5/4; n > most {
		t.Errorf("it remembers %d events, want %d at most", n, most)
	}
}
