package web

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/gofiber/fiber/v2"
)

// errFraming ends a connection in whose bytes a proxy in front may see other
// requests than fasthttp does (RFC 9112, sections 2.2, 2.3, 5.2, 6.1 and 7.1).
var errFraming = errors.New("web: a request is framed in a way that is not supported")

// framing follows the requests of a connection as their bytes are received, also of
// those that are pipelined: fasthttp shows nobody the request line, and accepts LF
// without CR. The zero value expects the first request. What it does not check, such
// as names and values, fasthttp does.
type framing struct {
	line  func(*framing, []byte) bool // what the next line is, nil for a request line
	part  []byte                      // of a line whose end was not received yet
	skip  int64                       // bytes of a body before the next line
	http1 bool                        // the request is of HTTP/1.1, not 1.0

	length         int64 // of the body, in bytes
	sized, chunked bool  // the header has a length, a transfer encoding
	broken         bool
}

// check returns how many of the bytes just received may pass on: all, unless a line
// of them is wrong. That passes on without its LF, so that it is answered, and
// nothing that comes later does.
func (f *framing) check(received []byte) int {
	for rest := received; ; {
		if f.broken {
			return 0
		}
		n := min(f.skip, int64(len(rest)))
		f.skip, rest = f.skip-n, rest[n:]
		if len(rest) == 0 {
			return len(received)
		}
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			f.part = append(f.part, rest...)
			return len(received)
		}
		line := rest[:end]
		if len(f.part) > 0 {
			line = append(f.part, line...)
			f.part = line[:0]
		}
		text, crlf := bytes.CutSuffix(line, []byte("\r\n"))
		if !crlf || !f.next(text) {
			f.broken = true
			return len(received) - len(rest) + end - 1
		}
		rest = rest[end:]
	}
}

// next reads a line without its end.
func (f *framing) next(line []byte) bool {
	if f.line == nil {
		return f.requestLine(line)
	}
	return f.line(f, line)
}

func (f *framing) requestLine(line []byte) bool {
	if len(line) == 0 {
		return true // an empty line in front of a request is passed over
	}
	f.http1 = bytes.HasSuffix(line, []byte(" HTTP/1.1"))
	f.line, f.length, f.sized, f.chunked = (*framing).field, 0, false, false
	return f.http1 || bytes.HasSuffix(line, []byte(" HTTP/1.0"))
}

// field reads a line of the header, the empty one at its end too.
func (f *framing) field(line []byte) bool {
	if len(line) == 0 {
		f.line, f.skip = nil, f.length
		if f.chunked {
			f.line = (*framing).chunk
		}
		return true
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.Trim(value, " \t")
	switch {
	case line[0] == ' ' || line[0] == '\t':
		return false // folded
	case bytes.EqualFold(name, []byte(fiber.HeaderContentLength)):
		length, err := strconv.ParseUint(string(value), 10, 63)
		good := err == nil && !f.sized && !f.chunked
		f.length, f.sized = int64(length), true
		return good
	case bytes.EqualFold(name, []byte(fiber.HeaderTransferEncoding)):
		good := f.http1 && bytes.EqualFold(value, []byte("chunked")) && !f.sized && !f.chunked
		f.chunked = true
		return good
	}
	return true
}

// chunk reads the line with the size of a chunk.
func (f *framing) chunk(line []byte) bool {
	digits, _, _ := bytes.Cut(line, []byte(";"))
	size, err := strconv.ParseUint(string(bytes.TrimRight(digits, " \t")), 16, 62)
	f.skip, f.line = int64(size), (*framing).chunkEnd
	if size == 0 {
		f.line = (*framing).trailer
	}
	return err == nil
}

// chunkEnd reads the line end behind a chunk.
func (f *framing) chunkEnd(line []byte) bool {
	f.line = (*framing).chunk
	return len(line) == 0
}

// trailer reads a line behind the last chunk, the empty one at the end too.
func (f *framing) trailer(line []byte) bool {
	if len(line) == 0 {
		f.line = nil
	}
	return true
}
