package web_test

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/web"
	"flightline/shared/web/framingtest"
)

// A proxy in front that frames a request in another way than we do hands one
// client's bytes to another. Each of these is one request or none, and what is
// refused ends its connection.
func TestFraming(t *testing.T) {
	t.Parallel()
	app := web.New(web.Config{})
	app.All("/*", func(c *fiber.Ctx) error { return c.SendStatus(fiber.StatusNoContent) })
	addr := serve(t, app)
	cases := framingtest.Good()
	maps.Copy(cases, framingtest.Bad())
	for name, tc := range cases {
		if got := statusesOf(t, addr, tc.Sent); got != tc.Want {
			t.Errorf("%s: got %s, want %s", name, got, tc.Want)
		}
		// The same behind a good request of the connection, in one packet with it.
		for before, first := range map[string]string{"GET": framingtest.Next, "a body": framingtest.Post(framingtest.Length, "a\nb\nc"), "chunks": framingtest.Post(framingtest.Chunked, "3\r\na\nb\r\n0\r\n\r\n")} {
			if got := statusesOf(t, addr, first+tc.Sent); got != strings.TrimSpace("204 "+tc.Want) {
				t.Errorf("%s, pipelined behind %s: got %s, want 204 %s", name, before, got, tc.Want)
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
