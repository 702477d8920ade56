package web

import (
	"testing"
	"time"
)

func TestThePaceGivesNoCreditForWhatCameFast(t *testing.T) {
	begun := time.Now()
	p := newPace(begun)
	for _, step := range []struct {
		bytes int
		after time.Duration
		want  time.Duration // the deadline, from the start
	}{
		{pacePart - 1, time.Second, paceTimeout},
		{1, 2 * time.Second, 2*time.Second + paceTimeout},
		{20 * pacePart, 3 * time.Second, 3*time.Second + paceTimeout},
		{100, 9 * time.Second, 3*time.Second + paceTimeout},
	} {
		p.advance(step.bytes, begun.Add(step.after))
		if got := p.deadline.Sub(begun); got != step.want {
			t.Errorf("%d bytes after %v: got the deadline %v, want %v", step.bytes, step.after, got, step.want)
		}
	}
}
