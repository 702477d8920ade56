package testenv

import (
	"bufio"
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/bus"
)

// SteppedClock is the way to a server whose clock can be set, as far as its answers
// show it. Its Config is that of a client.
type SteppedClock struct {
	bus.Config
	by atomic.Int64
}

// Set changes the time in the server's answers by that.
func (s *SteppedClock) Set(by time.Duration) { s.by.Store(int64(by)) }

// NewSteppedClock passes on what goes to and comes from the server of cfg, and changes
// the server's time in its answers.
func NewSteppedClock(t testing.TB, cfg bus.Config) *SteppedClock {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upstream := strings.TrimPrefix(cfg.URL, "nats://")
	s := &SteppedClock{Config: cfg}
	s.URL = "nats://" + l.Addr().String()
	var wires sync.WaitGroup
	wires.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			wires.Go(func() { s.pass(down, upstream) })
		}
	})
	t.Cleanup(func() { // after the connections' own
		_ = l.Close()
		wires.Wait()
	})
	return s
}

// pass ends with the client's connection.
func (s *SteppedClock) pass(down net.Conn, upstream string) {
	defer down.Close() //nolint:errcheck // it has no more to say
	up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", upstream)
	if err != nil {
		return
	}
	defer up.Close() //nolint:errcheck // nor this
	go func() {      // ends with down
		_, _ = bufio.NewReader(down).WriteTo(up)
		_ = up.Close()
	}()
	for r := bufio.NewReader(up); ; {
		line, err := r.ReadBytes('\n')
		if _, writeErr := down.Write(s.told(line)); errors.Join(err, writeErr) != nil {
			return
		}
	}
}

var timestamp = regexp.MustCompile(`"ts":"([^"]+)"`)

// told is a line with the server's time changed in it. It is as long as before.
func (s *SteppedClock) told(line []byte) []byte {
	by := time.Duration(s.by.Load())
	if by == 0 {
		return line
	}
	return timestamp.ReplaceAllFunc(line, func(found []byte) []byte {
		text := timestamp.FindSubmatch(found)[1]
		at, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil {
			return found
		}
		whole := at.Add(by).Format("2006-01-02T15:04:05")
		return append([]byte(`"ts":"`+whole), append(text[len(whole):], '"')...)
	})
}
