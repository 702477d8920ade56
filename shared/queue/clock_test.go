package queue

import (
	"testing"
	"time"
)

func TestTheClockKeepsTheBestMeasurementThatIsStillTrue(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const ahead = time.Hour // the server, of the local clock
	type measured struct {
		at, trip, off time.Duration // off: what the server's clock was set forward by
	}
	tests := map[string]struct {
		then []measured
		want time.Duration // of the server, ahead of the local clock
	}{
		"one is all there is":      {[]measured{{0, 100 * time.Millisecond, 0}}, ahead},
		"a shorter trip is better": {[]measured{{0, 100 * time.Millisecond, 0}, {time.Second, 2 * time.Millisecond, 3 * time.Millisecond}}, ahead + 3*time.Millisecond},
		"a longer one is worse":    {[]measured{{0, 2 * time.Millisecond, 0}, {time.Second, 100 * time.Millisecond, 40 * time.Millisecond}}, ahead},
		"until the best is old":    {[]measured{{0, 2 * time.Millisecond, 0}, {time.Minute, 100 * time.Millisecond, 40 * time.Millisecond}}, ahead + 40*time.Millisecond},
		"or cannot be true":        {[]measured{{0, 2 * time.Millisecond, 0}, {time.Second, 100 * time.Millisecond, 80 * time.Millisecond}}, ahead + 80*time.Millisecond},
		"the server is set back":   {[]measured{{0, 2 * time.Millisecond, 0}, {time.Second, 100 * time.Millisecond, -time.Minute}}, ahead - time.Minute},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			local := start
			c := newClock(func() time.Time { return local })
			if !c.now().Equal(start) {
				t.Errorf("before any measurement: got %s, want the local clock", c.now())
			}
			for _, m := range tc.then {
				sent := start.Add(m.at)
				local = sent.Add(m.trip)
				c.set(sent.Add(m.trip/2).Add(ahead+m.off), sent, local)
			}
			local = local.Add(time.Second)
			if got := c.now().Sub(local); got != tc.want {
				t.Errorf("got the server %s ahead, want %s", got, tc.want)
			}
		})
	}
}
