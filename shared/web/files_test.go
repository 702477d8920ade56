//go:build unix

package web_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"flightline/shared/web"
)

// crowded is a listener that has no file handles for a while.
type crowded struct {
	net.Listener
	refusals atomic.Int32 // to come
}

func (l *crowded) Accept() (net.Conn, error) {
	if l.refusals.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestAServerOutlivesAFullTableOfFiles(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &crowded{Listener: inner}
	l.refusals.Store(3)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	app := web.New(web.Config{})
	go func() { served <- web.Serve(ctx, app, l) }()
	within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(within, http.MethodGet, "http://"+inner.Addr().String()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("got %v, want an answer once there are file handles", err)
	}
	_ = answer.Body.Close()
	stop()
	if err := <-served; err != nil {
		t.Errorf("Serve: got %v, want nil", err)
	}
}
