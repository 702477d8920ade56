package cli

import (
	"slices"
	"testing"
	"time"
)

func TestPausesOfWebhooksAreReadAndShown(t *testing.T) {
	tests := map[string]struct {
		want []time.Duration
		bad  bool
	}{
		"10s,10s":   {want: []time.Duration{10 * time.Second, 10 * time.Second}},
		"1s, 1m,1h": {want: []time.Duration{time.Second, time.Minute, time.Hour}},
		"none":      {want: []time.Duration{}},
		"":          {bad: true},
		"10":        {bad: true},
		"1s,,2s":    {bad: true},
	}
	for text, test := range tests {
		got, err := pauses(text)
		if (err != nil) != test.bad || !test.bad && (got == nil || !slices.Equal(got, test.want)) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, test.want)
		}
	}
	for want, list := range map[string][]time.Duration{"10s,10s": nil, "none": {}, "1s,1m0s": {time.Second, time.Minute}} {
		if got := pausesText(list); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
