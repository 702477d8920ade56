package pod

import (
	"testing"
	"time"
)

func TestTheStatesOfSleep(t *testing.T) {
	t.Parallel()
	at, wake := time.Unix(1000, 0), time.Unix(1010, 0)
	for name, tc := range map[string]struct {
		sleep Sleep
		want  Phase
		since time.Time
	}{
		"awake":    {Sleep{Took: time.Second}, "", time.Time{}},
		"sleeping": {Sleep{At: at}, Sleeping, at},
		"waking":   {Sleep{At: at, Asleep: at, Wake: wake}, Waking, wake},
	} {
		got, since := tc.sleep.State()
		if got != tc.want || since != tc.since || tc.sleep.Sleeps() != (tc.want == Sleeping) || tc.sleep.Wakes() != (tc.want == Waking) {
			t.Errorf("%s: got %q since %s, want %q since %s", name, got, since, tc.want, tc.since)
		}
	}
	over := wake.Add(3 * time.Second).UTC()
	if got := (Sleep{At: at, Wake: wake}).Awake(over); got != (Sleep{Took: 3 * time.Second, Awoke: over}) {
		t.Errorf("got %+v, want it awake after 3 s", got)
	}
}

func TestTheUsualWake(t *testing.T) {
	t.Parallel()
	took := func(endpoint string, s int) Pod {
		return Pod{Endpoint: endpoint, Sleep: Sleep{Took: time.Duration(s) * time.Second}}
	}
	if got := UsualWake([]Pod{took("a", 9), took("a", 1), took("a", 3), took("b", 100), took("a", 0)}, "a"); got != 3*time.Second {
		t.Errorf("got %s, want the median of its own", got)
	}
	if got := UsualWake(nil, "a"); got != 0 {
		t.Errorf("got %s of none", got)
	}
}
