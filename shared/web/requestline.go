package web

import (
	"bytes"
	"errors"
)

// errBareLF ends a connection whose client ended a request line with LF alone.
var errBareLF = errors.New("web: a request line ends in LF without CR")

// requestLine finds request lines that end in LF alone in what a connection
// receives. fasthttp accepts them, and gives nobody a look at the line; a proxy
// in front may see another line there (RFC 9112, section 2.2). The line of a
// request that was pipelined, and so received with the one before, is not seen.
type requestLine struct {
	expected bool // the next byte received is the first of a request
	received bool // since then
	last     byte
	length   int // of the line
}

// expect notes that the next byte received begins a request, unless begin comes first.
func (l *requestLine) expect() { *l = requestLine{expected: true} }

// begin notes that a request has begun. Nothing received since expect means that
// it was received before.
func (l *requestLine) begin() { l.expected = l.expected && l.received }

// check returns how many of the bytes just received may pass on: all, unless
// the line ends in LF alone.
func (l *requestLine) check(received []byte) int {
	l.received = l.received || len(received) > 0
	for rest := received; l.expected && len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			l.last, l.length = rest[len(rest)-1], l.length+len(rest)
			break
		}
		if end > 0 {
			l.last = rest[end-1]
		}
		if l.last != '\r' {
			return len(received) - len(rest) + end
		}
		l.expected = l.length+end == 1 // an empty line in front of a request is passed over
		l.last, l.length, rest = 0, 0, rest[end+1:]
	}
	return len(received)
}
