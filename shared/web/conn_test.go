package web

import (
	"testing"
	"time"
)

func TestRequestLinesEndInCRLF(t *testing.T) {
	for name, tc := range map[string]struct {
		received []string
		want     int // bytes of the last piece that pass
	}{
		"good":                      {[]string{"GET / HTTP/1.1\r\nHost: x\n\n"}, 25},
		"good, a byte at a time":    {[]string{"G", "\r", "\n"}, 1},
		"LF alone":                  {[]string{"GET / HTTP/1.1\nHost: x\r\n\r\n"}, 14},
		"LF alone in a later piece": {[]string{"GET / ", "HTTP/1.1", "\nHost"}, 0},
		"an empty line before":      {[]string{"\r\nGET /\r\n"}, 9},
		"LF alone after that":       {[]string{"\r\nGET /\n"}, 7},
		"an empty line of LF":       {[]string{"\nGET /\r\n"}, 0},
		"CR within the line":        {[]string{"GET /\rx\n"}, 7},
	} {
		var l requestLine
		l.expect()
		got := 0
		for _, piece := range tc.received {
			got = l.check([]byte(piece))
			l.begin()
		}
		if got != tc.want {
			t.Errorf("%s: got %d bytes, want %d", name, got, tc.want)
		}
	}
	var body requestLine
	body.expect()
	body.begin() // received together with the request before
	if got := body.check([]byte("a\nb")); got != 3 {
		t.Errorf("the rest of a pipelined request: got %d bytes, want 3", got)
	}
}

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
