package webhook

import (
	"net/http"
	"testing"
	"time"

	"flightline/shared/deliveries"
)

func TestSteps(t *testing.T) {
	t.Parallel()
	now := time.Now()
	entry := func(try int, outcome deliveries.Outcome, next time.Duration) deliveries.Attempt {
		return deliveries.Attempt{Seq: 7, Try: try, Outcome: outcome, Started: now.Add(next - 10*time.Second), Next: now.Add(next), Replay: "r1"}
	}
	tests := map[string]struct {
		last   deliveries.Attempt
		replay string
		do     step
		n      int
	}{
		"never tried":             {deliveries.Attempt{}, "", try, 1},
		"failed, not yet due":     {entry(1, deliveries.Failed, time.Second), "r1", wait, 0},
		"the clock was set back":  {entry(1, deliveries.Failed, time.Hour), "r1", try, 2},
		"failed, due":             {entry(1, deliveries.Failed, 0), "r1", try, 2},
		"delivered":               {entry(2, deliveries.Delivered, 0), "r1", finish, 0},
		"given up":                {entry(3, deliveries.GivenUp, 0), "r1", giveUp, 0},
		"given up, then replayed": {entry(3, deliveries.GivenUp, 0), "r2", try, 1},
		"delivered, replayed":     {entry(1, deliveries.Delivered, 0), "r2", try, 1},
	}
	for name, test := range tests {
		if do, n := stepOf(test.last, test.replay, now); do != test.do || n != test.n {
			t.Errorf("%s: got %d, %d, want %d, %d", name, do, n, test.do, test.n)
		}
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	own := []time.Duration{time.Second, time.Hour}
	tests := map[string]struct {
		n        int
		schedule []time.Duration
		wish     time.Duration
		pause    time.Duration
		again    bool
	}{
		"first, the contract's":  {1, nil, 0, 10 * time.Second, true},
		"second, the contract's": {2, nil, 0, 10 * time.Second, true},
		"third, the contract's":  {3, nil, 0, 0, false},
		"a schedule's second":    {2, own, 0, time.Hour, true},
		"a schedule's end":       {3, own, 0, 0, false},
		"no retries":             {1, []time.Duration{}, 0, 0, false},
		"a longer wish":          {1, nil, 30 * time.Second, 30 * time.Second, true},
		"a shorter wish":         {1, nil, time.Second, 10 * time.Second, true},
		"a wish too long":        {1, nil, time.Hour, time.Minute, true},
		"a wish at the end":      {3, nil, time.Second, 0, false},
		"a schedule beats it":    {2, own, time.Minute, time.Hour, true},
	}
	for name, test := range tests {
		if pause, again := pauseAfter(test.n, test.schedule, test.wish); pause != test.pause || again != test.again {
			t.Errorf("%s: got %s, %v, want %s, %v", name, pause, again, test.pause, test.again)
		}
	}
}

func TestRetryAfterHeader(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "99999999999999": 0,
		now.Add(time.Minute).UTC().Format(http.TimeFormat):  time.Minute,
		now.Add(-time.Minute).UTC().Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	unknown := concurrency{limit: initialConcurrency, since: time.Now().Add(-time.Second)}
	hanging := unknown.after(15*time.Second, false, 8)
	healthy := unknown
	for range 10 {
		healthy = healthy.after(2*time.Millisecond, true, 8)
	}
	tests := map[string]struct {
		c     concurrency
		limit int
		wait  time.Duration // of 1000
	}{
		"no answer for a second": {unknown, 2, 500 * time.Second},
		"hanging":                {hanging, 1, 15_000 * time.Second},
		"healthy":                {healthy, 8, 250 * time.Millisecond},
		"healthy, then one hang": {healthy.after(15*time.Second, false, 8), 4, 469 * time.Second},
		"back":                   {hanging.after(time.Millisecond, true, 8).after(time.Millisecond, true, 8), 3, 3828 * time.Second},
	}
	for name, test := range tests {
		if got := test.c.expectedWait(1000).Round(time.Second); test.c.limit != test.limit || got != test.wait.Round(time.Second) {
			t.Errorf("%s: got limit %d, wait %s, want %d, %s", name, test.c.limit, got, test.limit, test.wait)
		}
	}
}
