// Package process runs the parts of a program together and stops them in
// order: what was started last, and so may need what was started before it,
// stops first. It knows the signals, and the exit codes that all commands share; those
// of client commands alone are in services/cli/exit.go.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// Exit codes of the command line.
const (
	// ExitOK says that the command did what it was asked.
	ExitOK = 0
	// ExitFailure says that it tried and failed; the reason is on stderr.
	ExitFailure = 1
	// ExitUsage says that it was asked wrongly and nothing was tried.
	ExitUsage = 2
)

// NoticeDelay is how long a part may take to stop before a log line names it.
const NoticeDelay = time.Second

// StopGrace is how long a part may take to stop unless it says otherwise.
const StopGrace = 10 * time.Second

// ErrStuck reports a part that did not stop within its grace. It may still be
// running: the process should end.
var ErrStuck = errors.New("process: did not stop in time")

// Part is something that runs until its context ends.
type Part struct {
	// Name is how logs and errors call the part. Required.
	Name string
	// Run does the part's work and returns when ctx is done, having waited
	// for all it started. Returning nil earlier means that the part is done;
	// the others go on. An error stops them all. Required.
	Run func(ctx context.Context) error
	// Optional says that the others go on without the part: its error is logged,
	// and is none of Run's.
	Optional bool
	// Grace is how long Run may take to return once ctx is done. 0 means
	// StopGrace.
	Grace time.Duration
	// Waiting says in a few words what Run waits for while it stops, such as
	// "2 running jobs". It is called from another goroutine. nil or "" adds
	// nothing to the name.
	Waiting func() string
}

// part is a Part that was started.
type part struct {
	Part
	stop context.CancelFunc
	done chan struct{} // closed after err was written
	err  error
}

// Run starts the parts in the order given and blocks until all have returned.
// When ctx is done or a part that is not optional returns an error, it stops those that still run,
// one after the other from the last to the first, so that each can rely on
// those before it until it is gone. A part that takes longer than NoticeDelay to
// stop is named in the log, with what it waits for.
//
// It returns nil if ctx was the reason and every part stopped without an
// error, else the parts' errors, each with its part's name, joined; ErrStuck
// among them for a part that was given up. A part's context.Canceled after its
// context ended is no error. A panic in a part is not recovered.
func Run(ctx context.Context, log *slog.Logger, parts ...Part) error {
	failed := make(chan struct{}, len(parts))
	running := make([]*part, 0, len(parts))
	for _, p := range parts {
		running = append(running, start(ctx, log, p, failed))
		log.DebugContext(ctx, "part started", "part", p.Name)
	}
	waitForEnd(ctx, running, failed)

	errs := make([]error, 0, len(parts))
	for _, p := range slices.Backward(running) {
		errs = append(errs, p.halt(log))
		log.DebugContext(ctx, "part stopped", "part", p.Name)
	}
	slices.Reverse(errs)
	return errors.Join(errs...)
}

// start gives the part a context of its own, which does not end with ctx:
// only halt ends it, in order.
func start(ctx context.Context, log *slog.Logger, p Part, failed chan<- struct{}) *part {
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	started := &part{Part: p, stop: stop, done: make(chan struct{})}
	go func() { // ends with the part; halt waits for it
		defer close(started.done)
		err := p.Run(own)
		if own.Err() != nil && errors.Is(err, context.Canceled) {
			return // told to stop, and did
		}
		switch {
		case err == nil:
		case p.Optional:
			log.ErrorContext(ctx, "part failed; the others go on without it", "part", p.Name, "err", err)
		default:
			started.err = fmt.Errorf("%s: %w", p.Name, err)
			failed <- struct{}{}
		}
	}()
	return started
}

// waitForEnd returns when ctx is done, a part has failed, or all are done.
func waitForEnd(ctx context.Context, running []*part, failed <-chan struct{}) {
	for _, p := range running {
		select {
		case <-ctx.Done():
			return
		case <-failed:
			return
		case <-p.done:
		}
	}
}

// halt stops the part and waits for it, but no longer than its grace.
func (p *part) halt(log *slog.Logger) error {
	p.stop()
	grace := cmp.Or(p.Grace, StopGrace)
	notice, late := time.NewTimer(NoticeDelay), time.NewTimer(grace)
	defer notice.Stop()
	defer late.Stop()
	for {
		select {
		case <-p.done:
			return p.err
		case <-notice.C:
			log.Warn("still stopping; a second Ctrl-C ends the process at once", "waiting_for", p.waiting(), "at_most", grace)
		case <-late.C:
			return fmt.Errorf("%s: %w (%v)", p.Name, ErrStuck, grace)
		}
	}
}

// waiting names the part and what it waits for.
func (p *part) waiting() string {
	if p.Waiting != nil {
		if what := p.Waiting(); what != "" {
			return fmt.Sprintf("%s (%s)", p.Name, what)
		}
	}
	return p.Name
}

// Signals returns a context that is done at the first SIGINT, SIGTERM or SIGHUP, so
// that the program stops in order; a second SIGINT or SIGTERM ends the process at
// once, as if nobody had listened. A terminal that is closed may send several SIGHUP.
// Where SIGHUP is ignored, as by nohup, it stays so. The caller calls stop when it has
// no more use for the context.
func Signals(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
		withstand(syscall.SIGHUP)
	}
	ctx, stop = signal.NotifyContext(ctx, ends...) //nolint:forbidigo // this is the one place
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// SurviveBrokenPipe keeps the process alive when nothing reads its output any more, as
// after the end of the program behind a pipe: a write fails then. It is for programs
// that serve; one whose output is what it is for had better end.
func SurviveBrokenPipe() { withstand(syscall.SIGPIPE) }

// withstand keeps a signal from ending the process. Programs that it starts are not
// affected, as they would be if the signal were ignored.
func withstand(s os.Signal) {
	signal.Notify(make(chan os.Signal, 1), s) //nolint:forbidigo // this is the one place
}
