package cli

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"flightline/shared/job"
)

// liveEvery is how often the live line is written anew.
const liveEvery = 100 * time.Millisecond

// live is a line on a terminal that says what is being waited for. Its zero
// value shows nothing.
type live struct {
	out    io.Writer // nil shows nothing
	status atomic.Value
}

// newLive is a live line on w if that is a terminal, else one that shows
// nothing.
func newLive(w io.Writer) *live {
	if f, ok := w.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		return &live{out: w}
	}
	return &live{}
}

// set changes the status that is shown.
func (l *live) set(s job.Status) { l.status.Store(s) }

// during shows the line while wait runs, and removes it before it returns.
func (l *live) during(wait func() error) error {
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
			status, _ := l.status.Load().(job.Status)
			_, _ = io.WriteString(l.out, eraseLine+liveLine(status, time.Since(began)))
		case err := <-done:
			_, _ = io.WriteString(l.out, eraseLine)
			return err
		}
	}
}

// eraseLine goes to the start of the line and empties it.
const eraseLine = "\r\x1b[K"

func liveLine(s job.Status, elapsed time.Duration) string {
	text := string(s)
	if s == "" {
		text = "waiting"
	}
	return fmt.Sprintf("%s  %.1fs", text, elapsed.Seconds())
}
