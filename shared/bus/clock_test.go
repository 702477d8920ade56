package bus

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
			if !c.Now().Equal(start) {
				t.Errorf("before any measurement: got %s, want the local clock", c.Now())
			}
			for _, m := range tc.then {
				sent := start.Add(m.at)
				local = sent.Add(m.trip)
				c.set(sent.Add(m.trip/2).Add(ahead+m.off), sent, local)
			}
			local = local.Add(time.Second)
			if got := c.Now().Sub(local); got != tc.want {
				t.Errorf("got the server %s ahead, want %s", got, tc.want)
			}
		})
	}
}

func TestHowFarTheClockWasSetSince(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	at := noon.Add
	const hour, minute = time.Hour, time.Minute
	forward := []step{{at(hour), hour}}                    // at noon
	back := []step{{at(-hour), -hour}}                     // at noon
	there := []step{{at(hour), hour}, {at(minute), -hour}} // and back after a minute
	tests := map[string]struct {
		steps   []step
		of, now time.Duration // the run's start, as the clock showed it, and now; from noon
		want    time.Duration
	}{
		"no step":                         {nil, -minute, 0, 0},
		"forward, before":                 {forward, -minute, hour, hour},
		"forward, long before":            {forward, -20 * hour, hour, hour},
		"forward, by who had not noticed": {forward, 3 * time.Second, hour + 4*time.Second, hour},
		"forward, after":                  {forward, hour + minute, hour + 2*minute, 0},
		"forward, by who noticed earlier": {forward, hour - time.Second, hour, 0},
		"back, before":                    {back, -minute, -hour + minute, -hour},
		"back, by who had not noticed":    {back, 3 * time.Second, -hour + 4*time.Second, -hour},
		"back, long before":               {back, -3 * hour, -hour + minute, -hour},
		"back, after":                     {back, -hour + minute, -hour + 2*minute, 0},
		"back, by a clock ahead of this":  {back, -hour + 2*minute + time.Second, -hour + 2*minute, 0},
		"back, shown twice":               {back, -30 * minute, -20 * minute, 0},
		"there and back, before both":     {there, -minute, 2 * minute, 0},
		"there and back, between":         {there, hour + 30*time.Second, 2 * minute, -hour},
		"there and back, after":           {there, 90 * time.Second, 2 * minute, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := stepped(tc.steps, at(tc.of), at(tc.now)); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
