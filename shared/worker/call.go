package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"flightline/shared/job"
)

// outcome is what came of a handler: an output, or the text of its failure, or that the job
// is to be given back. ended is why its context had ended when it returned, nil if it had not.
type outcome struct {
	output    json.RawMessage
	failed    string
	givenBack bool
	ended     error
}

func failed(format string, args ...any) outcome {
	return outcome{failed: strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")}
}

// call runs the handler, whatever it does, and sends what came of it on
// result, which it closes.
func (w *worker) call(ctx context.Context, j *Job, result chan<- outcome) {
	out := failed("%s: it ended its goroutine", job.ErrTextPanic) // runtime.Goexit
	var ended error
	defer close(result)
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			if of, ok := v.(*batchPanic); ok {
				v, stack = of.value, of.stack
			}
			w.log.ErrorContext(ctx, "handler panicked", "job", j.ID, "run", j.Run, "panic", v, "stack", string(stack))
			out = failed("%s: %T", job.ErrTextPanic, v)
		}
		out.ended = ended
		result <- out
	}()
	output, err := func() (any, error) {
		defer func() { ended = context.Cause(ctx) }()
		return w.handler(ctx, j)
	}()
	if errors.Is(err, ErrDraining) && w.isStopping() {
		out = outcome{givenBack: true}
		return
	}
	if err != nil {
		out = failed("%s", textOf(err))
		return
	}
	data, err := encode(output)
	if err != nil {
		out = failed("the handler's output cannot be encoded as JSON: %v", err)
		return
	}
	out = outcome{output: data}
}

func (w *worker) isStopping() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// textOf is what the caller reads of an error; never nothing.
func textOf(err error) string {
	if text := err.Error(); strings.TrimSpace(text) != "" {
		return text
	}
	return fmt.Sprintf("handler failed with a %T without text", err)
}
