package web_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/shared/testenv"
	"flightline/shared/web"
)

// from opens a connection from this address of the loopback network.
func from(t *testing.T, address, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: patience}
	conn, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Skipf("this system has no second loopback address: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// healthz asks on a connection of its own, and returns the status or 0.
func healthz(t *testing.T, conn net.Conn) int {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	text, _ := io.ReadAll(conn) // a refused connection may be reset
	switch {
	case strings.HasPrefix(string(text), "HTTP/1.1 200"):
		return http.StatusOK
	case strings.HasPrefix(string(text), "HTTP/1.1 503"):
		return http.StatusServiceUnavailable
	}
	return 0
}

func TestConnectionsAreBoundedInSumAndPerAddress(t *testing.T) {
	const most, perAddress = 6, 4
	var logged strings.Builder
	limit := web.NewConnLimit(most, perAddress, slog.New(slog.NewTextHandler(&logged, nil)))
	app := web.New(web.Config{HeaderTimeout: time.Hour})
	web.NewHealth("v", nil).Routes(app)
	addr := serveOn(t, app, func(l net.Listener) net.Listener { return limit.Listener(l, true) })
	open := func(n int32) {
		testenv.Eventually(t, fmt.Sprintf("%d connections are open", n), func() bool { return app.Server().GetOpenConnectionsCount() == n })
	}
	var held []net.Conn
	for range perAddress {
		held = append(held, from(t, "127.0.0.1", addr))
	}
	open(perAddress)
	if got := healthz(t, from(t, "127.0.0.1", addr)); got == http.StatusOK {
		t.Errorf("connection %d of an address: got 200, want none", perAddress+1)
	}
	if got := healthz(t, from(t, "127.0.0.2", addr)); got != http.StatusOK {
		t.Errorf("a connection of another address: got %d, want 200", got)
	}
	open(perAddress)
	testenv.Eventually(t, "no more fit", func() bool { // fasthttp counts a connection out before it closes it
		from(t, "127.0.0.2", addr)
		return app.Server().GetOpenConnectionsCount() == most
	})
	if got := healthz(t, from(t, "127.0.0.3", addr)); got == http.StatusOK {
		t.Errorf("connection %d: got 200, want none", most+1)
	}
	_ = held[0].Close()
	testenv.Eventually(t, "there is room again", func() bool { return healthz(t, from(t, "127.0.0.3", addr)) == http.StatusOK })
	if got := strings.Count(logged.String(), "connections refused"); got != 1 {
		t.Errorf("got %d lines in the log, want 1:\n%s", got, logged.String())
	}
}

func TestARefusedConnectionIsAnswered(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := web.NewConnLimit(1, 1, slog.New(slog.DiscardHandler)).Listener(inner, true)
	accepted := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(accepted)
		for ctx.Err() == nil {
			if _, err := limited.Accept(); err != nil {
				return
			}
		}
	}()
	defer func() { cancel(); _ = limited.Close(); <-accepted }()
	from(t, "127.0.0.1", inner.Addr().String())
	refused := from(t, "127.0.0.1", inner.Addr().String())
	_ = refused.SetDeadline(time.Now().Add(patience))
	if text, err := io.ReadAll(refused); err != nil || !strings.Contains(string(text), `"code":"unavailable"`) {
		t.Errorf("got %q, %v, want an answer of 503", text, err)
	}
}
