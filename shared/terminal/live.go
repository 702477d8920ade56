package terminal

import (
	"cmp"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// liveEvery is how often the live line is written again.
const liveEvery = 100 * time.Millisecond

// Live is a line on a terminal that says what is being waited for, and for how long.
// Its zero value shows nothing.
type Live struct {
	out  io.Writer // nil shows nothing
	text atomic.Value
}

// NewLive is a live line on w if that is a terminal, else a line that shows nothing.
func NewLive(w io.Writer) *Live {
	if Is(w) {
		return &Live{out: w}
	}
	return &Live{}
}

// Shown reports whether there is anybody to read the line.
func (l *Live) Shown() bool { return l.out != nil }

// Set changes the text, which is "waiting" until then.
func (l *Live) Set(text string) { l.text.Store(text) }

// During shows the line while wait runs, and removes it before it returns what wait
// does.
func (l *Live) During(wait func() error) error {
	if l.out == nil {
		return wait()
	}
	done := make(chan error, 1)
	go func() { done <- wait() }() // ends with wait, which the loop waits for
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	began := time.Now()
	for {
		select {
		case <-tick.C:
			text, _ := l.text.Load().(string)
			_, _ = fmt.Fprintf(l.out, "%s%s  %.1fs", eraseLine, cmp.Or(text, "waiting"), time.Since(began).Seconds())
		case err := <-done:
			_, _ = io.WriteString(l.out, eraseLine)
			return err
		}
	}
}

// eraseLine goes to the start of the line and empties it.
const eraseLine = "\r\x1b[K"
