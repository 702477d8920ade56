package telemetry

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"
)

// outputWait is how long a line may wait for the output of the log.
const outputWait = time.Second

// NewLogger writes lines to out in the form that the handler gives them.
//
// An output may stand still without end: a terminal after Ctrl-S, a pager, the log driver of
// a container. So a line waits a second at most, and no job waits for the log. While the
// output does not take that line, the lines after it are left out; once it has taken it, one
// line of level WARN says how many, as lines_left_out.
func NewLogger(out io.Writer, form func(io.Writer) slog.Handler) *slog.Logger {
	return slog.New(form(&logOutput{out: out, form: form, wait: outputWait}))
}

// logOutput passes one line after the other on to out.
type logOutput struct {
	out  io.Writer
	form func(io.Writer) slog.Handler
	wait time.Duration

	mu      sync.Mutex
	stuck   <-chan struct{} // is closed once out has taken the line that it was given last; nil if it has
	leftOut int             // lines since then
}

// Write implements io.Writer.
func (o *logOutput) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stuck != nil {
		select {
		case <-o.stuck:
			o.stuck = nil
		default:
			o.leftOut++
			return len(line), nil
		}
	}
	var lines bytes.Buffer
	if o.leftOut > 0 {
		slog.New(o.form(&lines)).Warn("the output of the log stood still", "lines_left_out", o.leftOut)
		o.leftOut = 0
	}
	lines.Write(line)
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		_, _ = o.out.Write(lines.Bytes()) // slog has no use for an error either
	}()
	timer := time.NewTimer(o.wait)
	defer timer.Stop()
	select {
	case <-taken:
	case <-timer.C:
		o.stuck = taken
	}
	return len(line), nil
}
