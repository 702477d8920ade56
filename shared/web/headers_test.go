package web_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/web"
)

// connect opens a connection and sends text.
func connect(t *testing.T, addr, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestAHeaderIsSentInTimeOrTheConnectionEnds(t *testing.T) {
	t.Parallel()
	app := web.New(web.Config{HeaderTimeout: 200 * time.Millisecond})
	app.Get("/", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{}) })
	addr := serve(t, app)
	const whole = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, tc := range map[string]struct {
		sent string
		want []int // the statuses of the answers before the end
	}{
		"nothing":                    {"", nil},
		"a part":                     {"GET / HTTP/1.1\r\nHost: x\r\n", []int{http.StatusRequestTimeout}},
		"a part of the request line": {"GET", []int{http.StatusRequestTimeout}},
		"a part of a later request":  {whole + "GET /", []int{http.StatusOK, http.StatusRequestTimeout}},
	} {
		conn := connect(t, addr, tc.sent)
		got := bufio.NewReader(conn)
		for _, want := range tc.want {
			resp, err := http.ReadResponse(got, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != want {
				t.Errorf("%s: got %d, %v, want %d", name, resp.StatusCode, err, want)
			}
		}
		if rest, err := io.ReadAll(got); err != nil || len(rest) > 0 {
			t.Errorf("%s: got %q, %v, want the end", name, rest, err)
		}
	}
}

func TestAConnectionMayIdleBetweenRequests(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	app := web.New(web.Config{HeaderTimeout: timeout})
	app.Get("/", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{}) })
	conn := connect(t, serve(t, app), "")
	for range 2 {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if status, _ := answered(t, conn); status != http.StatusOK {
			t.Errorf("got %d, want 200", status)
		}
		<-time.After(2 * timeout)
	}
}
