package web

import (
	"strings"
	"testing"
)

// What passes of a connection's bytes does not depend on the pieces they come in.
func TestEachRequestOfAConnectionIsChecked(t *testing.T) {
	const get, end = "GET / HTTP/1.1\r\nHost: x\r\n", "\r\n"
	for name, tc := range map[string]struct{ good, rest string }{
		"good":                          {get + end + get + end, ""},
		"a request that is not whole":   {get + end + "GET / HTTP/1.1\r", ""},
		"LF ends the request line":      {get + end, "GET / HTTP/1.1\nHost: x\r\n\r\n"},
		"LF ends a field":               {get, "A: b\n\r\n"},
		"LF ends the header":            {get, "\nGET /"},
		"LF in a body":                  {get + "content-length:\t4 \r\n\r\na\nb\n" + get, ""},
		"LF behind a body":              {get + "Content-Length: 1\r\n\r\na", "\n" + get},
		"LF in a chunk":                 {get + "Transfer-Encoding: Chunked\r\n\r\n2;a=b\r\na\n\r\n0\r\n\r\n" + get, ""},
		"LF ends the size of a chunk":   {get + "Transfer-Encoding: chunked\r\n\r\n", "2\nab\r\n"},
		"LF ends a chunk":               {get + "Transfer-Encoding: chunked\r\n\r\n2\r\nab", "\n0\r\n\r\n"},
		"a chunk that is too long":      {get + "Transfer-Encoding: chunked\r\n\r\n2\r\nab", "c\r\n0\r\n\r\n"},
		"a length of 64 bits":           {get, "Content-Length: 9223372036854775808\r\n\r\n"},
		"a length beside chunked":       {get + "Transfer-Encoding: chunked\r\n", "Content-Length: 5\r\n"},
		"a length in the second header": {get + "Content-Length: 0\r\n\r\n" + get, "Content-Length: +5\r\n"},
	} {
		sent := tc.good + tc.rest
		for _, size := range []int{len(sent), 1, 2, 3, 7} {
			var f framing
			passed := 0
			for from := 0; from < len(sent); from += size {
				passed += f.check([]byte(sent[from:min(len(sent), from+size)]))
			}
			want := len(tc.good) + max(0, strings.IndexByte(tc.rest, '\n')) // the bad line without LF
			if passed != want || f.broken != (tc.rest != "") {
				t.Errorf("%s, in pieces of %d: %d bytes passed, broken: %v, want %d", name, size, passed, f.broken, want)
			}
		}
	}
}

func BenchmarkFraming(b *testing.B) {
	request := []byte("POST /v2/echo/runsync HTTP/1.1\r\nHost: localhost:8080\r\nAuthorization: Bearer fl_0123456789\r\nAccept: */*\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n" + `{"input":{"n":1}}`)
	var f framing
	b.ReportAllocs()
	for b.Loop() {
		if f.check(request) != len(request) {
			b.Fatal("a good request was refused")
		}
	}
}
