package testenv

import (
	"bufio"
	"errors"
	"io"
	"regexp"
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
	s := &SteppedClock{}
	s.Config = relay(t, cfg, func(down io.Writer, up io.Reader) error {
		for r := bufio.NewReader(up); ; {
			line, err := r.ReadBytes('\n')
			_, writeErr := down.Write(s.told(line))
			if err := errors.Join(err, writeErr); err != nil {
				return err
			}
		}
	})
	return s
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
