package web

import "testing"

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
