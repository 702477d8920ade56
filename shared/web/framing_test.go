package web_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/web"
)

// A proxy in front that frames a request in another way than we do hands one
// client's bytes to another. Each of these is one request or none, and what is
// refused ends its connection.
func TestFraming(t *testing.T) {
	t.Parallel()
	app := web.New(web.Config{})
	app.All("/*", func(c *fiber.Ctx) error { return c.SendStatus(fiber.StatusNoContent) })
	addr := serve(t, app)
	const host, length, chunked = "Host: x\r\n", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"
	const next = "GET /next HTTP/1.1\r\nHost: x\r\n\r\n"
	post := func(header, body string) string {
		return "POST / HTTP/1.1\r\n" + host + "Authorization: Bearer x\r\n" + header + "\r\n" + body
	}
	for name, tc := range map[string]struct {
		sent string
		want string // the statuses of all answers
	}{
		"good":                        {post(length, "hello") + next, "204 204"},
		"good, chunked":               {post(chunked, "5\r\nhello\r\n0\r\n\r\n") + next, "204 204"},
		"good, a chunk extension":     {post(chunked, "5;a=b\r\nhello\r\n0\r\n\r\n") + next, "204 204"},
		"good, absolute form":         {"GET http://x/ HTTP/1.1\r\n" + host + "\r\n" + next, "204 204"},
		"good, names in lower case":   {"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + next, "204 204"},
		"good, with a body":           {"GET / HTTP/1.1\r\n" + host + length + "\r\nhello" + next, "204 204"},
		"good, trailers":              {post(chunked, "0\r\nA: b\r\n\r\n") + next, "204 204"},
		"good, an empty line between": {post(length, "hello") + "\r\n" + next, "204 204"},
		"good, HTTP/1.0":              {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n" + host + "\r\n" + next, "204 204"},
		"good, the same length twice": {post(length+length, "hello") + next, "400"},
		"two lengths":                 {post(length+"Content-Length: 3\r\n", "hello") + next, "400"},
		"a list of lengths":           {post("Content-Length: 5, 5\r\n", "hello") + next, "400"},
		"a signed length":             {post("Content-Length: +5\r\n", "hello") + next, "400"},
		"a length in hex":             {post("Content-Length: 0x5\r\n", "hello") + next, "400"},
		"a negative length":           {post("Content-Length: -5\r\n", "hello") + next, "400"},
		"an empty length":             {post("Content-Length:\r\n", "hello") + next, "400"},
		"a length beside chunked":     {post(length+chunked, "0\r\n\r\n") + next, "400"},
		"chunked beside a length":     {post(chunked+length, "0\r\n\r\n") + next, "400"},
		"gzip and chunked":            {post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n") + next, "400"},
		"identity":                    {post("Transfer-Encoding: identity\r\n", "") + next, "400"},
		"an unknown encoding":         {post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n") + next, "400"},
		"chunked twice":               {post(chunked+chunked, "0\r\n\r\n") + next, "400"},
		"a space before the colon":    {post("Content-Length : 5\r\n", "hello") + next, "400"},
		"a tab before chunked":        {post("Transfer-Encoding:\x0bchunked\r\n", "0\r\n\r\n") + next, "400"},
		"two hosts":                   {"GET / HTTP/1.1\r\n" + host + "Host: y\r\n\r\n" + next, "400"},
		"no host":                     {"GET / HTTP/1.1\r\n\r\n" + next, "400"},
		"a NUL in a value":            {"GET / HTTP/1.1\r\n" + host + "A: b\x00c\r\n\r\n" + next, "400"},
		"a CR in a value":             {"GET / HTTP/1.1\r\n" + host + "A: b\rc\r\n\r\n" + next, "400"},
		"a NUL in a name":             {"GET / HTTP/1.1\r\n" + host + "A\x00: b\r\n\r\n" + next, "400"},
		"a line without a colon":      {"GET / HTTP/1.1\r\n" + host + "abc\r\n\r\n" + next, "400"},
		"a folded line":               {"GET / HTTP/1.1\r\n" + host + "A: b\r\n c\r\n\r\n" + next, "400"},
		"a space before a name":       {"GET / HTTP/1.1\r\n " + host + "\r\n" + next, "400"},
		"LF ends a header line":       {"GET / HTTP/1.1\r\n" + host + "A: b\nB: c\r\n\r\n" + next, "400"},
		"LF ends the request line":    {"GET / HTTP/1.1\n" + host + "\r\n" + next, "400"},
		"LF in a chunk extension":     {post(chunked, "5;a\nb\r\nhello\r\n0\r\n\r\n") + next, "400"},
		"a chunk size with a sign":    {post(chunked, "+5\r\nhello\r\n0\r\n\r\n") + next, "400"},
		"a chunk size of 17 digits":   {post(chunked, "00000000000000005\r\nhello\r\n0\r\n\r\n") + next, "400"},
		"a chunk that is too long":    {post(chunked, "3\r\nhello\r\n0\r\n\r\n") + next, "400"},
		"LF ends a chunk":             {post(chunked, "5\nhello\n0\n\n") + next, "400"},
		"HTTP/9.9":                    {"GET / HTTP/9.9\r\n" + host + "\r\n" + next, "400"},
		"HTTP/1.2":                    {"GET / HTTP/1.2\r\n" + host + "\r\n" + next, "400"},
		"two spaces":                  {"GET /  HTTP/1.1\r\n" + host + "\r\n" + next, "400"},
		"no version":                  {"GET /\r\n" + host + "\r\n" + next, "400"},
		"a space in the method":       {"GE T / HTTP/1.1\r\n" + host + "\r\n" + next, "400"},
		"chunked in HTTP/1.0":         {"POST / HTTP/1.0\r\n" + host + chunked + "\r\n0\r\n\r\n" + next, "400"},
		"LF ends a trailer":           {post(chunked, "0\r\nA: b\n\r\n") + next, "400"},
		"LF in front of a request":    {"\n" + next, ""},
	} {
		if got := statusesOf(t, addr, tc.sent); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
		// The same behind a good request of the connection, in one packet with it.
		for before, first := range map[string]string{"GET": next, "a body": post(length, "a\nb\nc"), "chunks": post(chunked, "3\r\na\nb\r\n0\r\n\r\n")} {
			if got := statusesOf(t, addr, first+tc.sent); got != strings.TrimSpace("204 "+tc.want) {
				t.Errorf("%s, pipelined behind %s: got %s, want 204 %s", name, before, got, tc.want)
			}
		}
	}
}

// statusesOf sends the bytes and returns the statuses of the answers until the
// connection ends, or the client has all that it can want.
func statusesOf(t *testing.T, addr, sent string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	if half, ok := conn.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	var statuses []string
	for in := bufio.NewReader(conn); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return strings.Join(statuses, " ")
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		statuses = append(statuses, res.Status[:3])
	}
}
