package testenv

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/time/rate"

	"flightline/shared/bus"
)

// Slow is the way to the server of cfg over a line that brings no more than so many bytes
// in a second from there.
func Slow(t testing.TB, cfg bus.Config, bytesPerSecond int) bus.Config {
	t.Helper()
	return relay(t, cfg, func(down io.Writer, up io.Reader) error {
		piece := make([]byte, 64<<10)
		pace := rate.NewLimiter(rate.Limit(bytesPerSecond), len(piece))
		for {
			n, err := up.Read(piece)
			if err == nil {
				err = pace.WaitN(context.Background(), n)
			}
			if err == nil {
				_, err = down.Write(piece[:n])
			}
			if err != nil {
				return err
			}
		}
	})
}

// relay is the way to the server of cfg through answers, which passes on what comes from
// there until either side ends.
func relay(t testing.TB, cfg bus.Config, answers func(down io.Writer, up io.Reader) error) bus.Config {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upstream := strings.TrimPrefix(cfg.URL, "nats://")
	cfg.URL = "nats://" + l.Addr().String()
	var wires sync.WaitGroup
	wires.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			wires.Go(func() { pass(down, upstream, answers) })
		}
	})
	t.Cleanup(func() { // after the connections' own
		_ = l.Close()
		wires.Wait()
	})
	return cfg
}

// pass ends with the client's connection.
func pass(down net.Conn, upstream string, answers func(down io.Writer, up io.Reader) error) {
	defer down.Close() //nolint:errcheck // it has no more to say
	up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", upstream)
	if err != nil {
		return
	}
	defer up.Close() //nolint:errcheck // nor this
	go func() {      // ends with down
		_, _ = io.Copy(up, down)
		_ = up.Close()
	}()
	_ = answers(down, up) // one of them has ended
}
