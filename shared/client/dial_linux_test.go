package client

import (
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"
)

// deaf is the address of a listener that answers no attempt to connect: its
// backlog is full, and the system drops what comes.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if controlled := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); controlled != nil || err != nil {
		t.Fatal(controlled, err)
	}
	dialer := net.Dialer{Timeout: 300 * time.Millisecond}
	for range 10 {
		conn, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			return l.Addr().String()
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Skip("this system takes connections beyond the backlog")
	return ""
}

// Nothing was sent to an address that does not take connections: even a call
// that must not be made twice goes to the next one.
func TestAnAddressThatDropsPacketsIsLeft(t *testing.T) {
	t.Parallel()
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"id":"j1","status":"IN_QUEUE"}`))
	}))
	t.Cleanup(b.Close)
	c, err := New("http://"+deaf(t)+","+b.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	c.http = newHTTPClient(nil, 300*time.Millisecond)
	began := time.Now()
	if _, err := c.Run(t.Context(), "ep", Request{Input: struct{}{}}); err != nil || c.BaseURL() != b.URL {
		t.Errorf("got %v, and %s as the address, want an answer of %s", err, c.BaseURL(), b.URL)
	}
	if took := time.Since(began); took > requestTimeout/2 {
		t.Errorf("got it after %v, want it after the limit of connecting", took)
	}
}
