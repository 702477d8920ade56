package bus

import (
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/endpoint"
)

// A process behind a node that was cut off leaves it within half of the least
// lease, wherever the cut falls between its probes, and waits longer for the next.
func TestStranded(t *testing.T) {
	cut := time.Now()
	cutOff := func(since time.Duration, nodes int, status nats.Status) bool {
		return newAttendance(cut).stranded(cut.Add(since), nodes, status)
	}
	tests := map[string]struct {
		got, want bool
	}{
		"all is well":                     {cutOff(0, 3, nats.CONNECTED), false},
		"one probe may be an election's":  {cutOff(probeTimeout+probeInterval, 3, nats.CONNECTED), false},
		"a node without the others":       {cutOff(maxSilence+silenceJitter, 3, nats.CONNECTED), true},
		"there is no other node":          {cutOff(time.Hour, 1, nats.CONNECTED), false},
		"it is looking for a node anyway": {cutOff(time.Hour, 3, nats.RECONNECTING), false},
	}
	for name, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %v, want %v", name, tt.got, tt.want)
		}
	}
	if worst := maxSilence + silenceJitter + max(probeTimeout, probeInterval); worst >= endpoint.MinLease/2 {
		t.Errorf("a node is left after %v, want less than half of the least lease, %v", worst, endpoint.MinLease)
	}
}

// An election sends nobody from node to node: patience doubles until one serves.
func TestPatienceWithTheNextNode(t *testing.T) {
	now := time.Now()
	a := newAttendance(now)
	for moves := range 10 {
		before := a.patience
		a.moved(now)
		if a.patience < min(2*before, maxSilenceBackoff) || a.patience > maxSilenceBackoff {
			t.Errorf("move %d: got patience %v after %v", moves, a.patience, before)
		}
	}
	a.served(now)
	if a.patience > maxSilence+silenceJitter {
		t.Errorf("served: got patience %v, want %v again", a.patience, maxSilence)
	}
}

func TestQuorum(t *testing.T) {
	here, late, away := replica{Active: time.Second}, replica{Active: peerSilence + 1}, replica{Offline: true}
	for name, tc := range map[string]struct {
		replicas []replica
		want     bool
	}{
		"no replicas":         {nil, true},
		"all are there":       {[]replica{here, here}, true},
		"one is silent":       {[]replica{here, late}, true},
		"one is away":         {[]replica{away, here}, true},
		"both are silent":     {[]replica{late, late}, false},
		"both are away":       {[]replica{away, away}, false},
		"two of four of five": {[]replica{here, here, late, away}, true},
		"one of four of five": {[]replica{here, late, late, away}, false},
	} {
		if got := (cluster{Replicas: tc.replicas}).quorum(); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestHowLongALeaderHasHeardNoMajority(t *testing.T) {
	after := func(seconds int) replica { return replica{Active: time.Duration(seconds) * time.Second} }
	for name, tc := range map[string]struct {
		replicas []replica
		want     time.Duration
	}{
		"alone":                 {nil, 0},
		"the better one counts": {[]replica{after(9), after(2)}, 2 * time.Second},
		"the second of four":    {[]replica{after(9), after(3), after(1), after(7)}, 3 * time.Second},
		"one is offline":        {[]replica{{Offline: true}, after(4)}, 4 * time.Second},
		"all are":               {[]replica{{Offline: true}, {Offline: true}}, math.MaxInt64},
	} {
		if got := (cluster{Replicas: tc.replicas}).silence(); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
