package pod

import (
	"testing"
	"time"
)

func TestWhoIsToDrain(t *testing.T) {
	began := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		pod  Pod
		want bool
	}{
		"nobody asked":                    {Pod{}, false},
		"it was asked":                    {Pod{Drain: Drain{At: began.Add(time.Second)}}, true},
		"it was asked as it began":        {Pod{Drain: Drain{At: began}}, true},
		"an earlier life was asked":       {Pod{Drain: Drain{At: began.Add(-time.Second)}}, false},
		"a driver's, while it began":      {Pod{Driver: Process, Drain: Drain{At: began.Add(-time.Second)}}, true},
		"a driver's that nobody asked":    {Pod{Driver: Docker}, false},
		"a driver's, long after it began": {Pod{Driver: Docker, Drain: Drain{At: began.Add(time.Hour)}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.pod.Drains(began); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
