package network

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// echo answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close() //nolint:errcheck // the test is over
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if _, err := fmt.Fprintln(c, lines.Text()); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func newTestRelay(t *testing.T) *Relay {
	t.Helper()
	r, err := NewRelay("127.0.0.1:0", echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// line is a caller who says one thing at a time.
type line struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, address string) *line {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &line{t: t, conn: c, in: bufio.NewReader(c)}
}

func (l *line) say(text string) {
	l.t.Helper()
	if _, err := fmt.Fprintln(l.conn, text); err != nil {
		l.t.Fatal(err)
	}
}

// hear is the next line, or an error after within.
func (l *line) hear(within time.Duration) (string, error) {
	l.t.Helper()
	if err := l.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		l.t.Fatal(err)
	}
	return l.in.ReadString('\n')
}

func (l *line) hears(want string) {
	l.t.Helper()
	if got, err := l.hear(10 * time.Second); err != nil || got != want+"\n" {
		l.t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

func (l *line) hearsNothing() {
	l.t.Helper()
	if got, err := l.hear(200 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		l.t.Fatalf("got %q, %v, want silence", got, err)
	}
}

func TestACutRelayIsSilentAndDeliversOnceMended(t *testing.T) {
	r := newTestRelay(t)
	before := dial(t, r.Address)
	before.say("one")
	before.hears("one")
	r.Cut()
	r.Cut() // a second time changes nothing
	before.say("two")
	before.hearsNothing()
	during := dial(t, r.Address)
	during.say("three")
	during.hearsNothing()
	r.Mend()
	r.Mend()
	before.hears("two")
	during.hears("three")
}

func TestARelayEndsWithEitherEnd(t *testing.T) {
	r := newTestRelay(t)
	l := dial(t, r.Address)
	l.say("one")
	l.hears("one")
	r.Cut()
	r.Close()
	if got, err := l.hear(10 * time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v, want the end", got, err)
	}
}
