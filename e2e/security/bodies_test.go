package security

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/shared/testenv/program"
)

const adminKey = "key-of-an-administrator"

// dev starts a dev with the admin key and the endpoint echo, and returns its address.
func dev(t *testing.T) (url string) {
	t.Helper()
	s := program.New(t)
	s.Environ = append(s.Environ, "FLIGHTLINE_API_KEY="+adminKey, "FLIGHTLINE_METRICS_LISTEN=127.0.0.1:0")
	url = s.Start("dev", "--no-demo").Line(program.Ready)
	s.OK("endpoint", "create", "echo")
	return url
}

// call sends a request with the key, within the bound, and returns the status and the body.
func call(t *testing.T, within time.Duration, method, url, key string, body []byte) (int, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// input is the body of a submission of so many bytes.
func input(size int) []byte {
	return fmt.Appendf(nil, `{"input":{"text":%q}}`, strings.Repeat("x", size))
}

// raw opens a connection that takes little at a time, and sends text.
func raw(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if tcp, ok := conn.(*net.TCPConn); ok && tcp.SetReadBuffer(4<<10) != nil {
		t.Fatal("the read buffer cannot be set")
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Bodies of 32 MB that are announced with a wrong key, and not sent, take nothing
// from a client with a good one.
func TestAnnouncedBodiesTakeNoRoom(t *testing.T) {
	t.Parallel()
	url := dev(t)
	address := strings.TrimPrefix(url, "http://")
	const head = "POST /v2/echo/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 32000000\r\nAuthorization: "
	open := 0
	for _, announced := range []int{17, 200} {
		for ; open < announced; open++ {
			key := "x"
			if open%2 == 1 {
				key = adminKey // a good key has no more from it
			}
			raw(t, address, head+key+"\r\n\r\n")
		}
		if status, text, err := call(t, 5*time.Second, http.MethodPost, url+"/v2/echo/run", adminKey, input(100_000)); err != nil || status != http.StatusOK {
			t.Errorf("with %d announced bodies: got %d %s, %v, want 200 at once", announced, status, text, err)
		}
	}
	asked := raw(t, address, head+"x\r\n\r\n"+strings.Repeat(" ", 70_000))
	if resp, err := http.ReadResponse(bufio.NewReader(asked), nil); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a body with a wrong key: got %v, %v, want 401", resp, err)
	} else {
		_ = resp.Body.Close()
	}
}
