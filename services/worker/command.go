package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"flightline/shared/job"
	"flightline/shared/telemetry"
	sdk "flightline/shared/worker"
)

const (
	// killAfter is how long a command has between SIGTERM and SIGKILL. With
	// lingerFor it stays below the 2 s in which the slot is free again.
	killAfter = time.Second
	// lingerFor is how long a process that left the command's group, and so
	// outlived it, is waited for, and lingerBytes how much is read: what the command
	// itself wrote is in the pipe, which holds less.
	lingerFor, lingerBytes = 300 * time.Millisecond, 1 << 20
	// stderrTail is how much of stderr an error holds; the exit code, and
	// replacements for what is no UTF-8, go before and into it.
	stderrTail = job.MaxError - 1<<10
)

// command runs a program for each job.
type command struct {
	path string
	args []string // the name first
	dir  string
	env  []string
	log  *slog.Logger
}

// run is the handler: it starts the program, feeds it the job, and makes of
// its output and its exit what the package comment says.
func (c *command) run(ctx context.Context, j *sdk.Job) (any, error) {
	input, err := documentOf(j)
	if err != nil {
		return nil, fmt.Errorf("encode the job: %w", err)
	}
	log := c.log.With("job", j.ID, "run", j.Run)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stderr := &tail{most: stderrTail, line: func(line []byte) {
		log.InfoContext(ctx, "command says", "stderr", string(line))
		j.Printed("stderr", line)
	}}
	cmd := c.prepare(ctx, append(input, '\n'), stderr)
	out := &results{
		emit: func(chunk json.RawMessage) error { return j.Emit(ctx, chunk) },
		other: func(line []byte) {
			log.InfoContext(ctx, "command says", "stdout", string(line))
			j.Printed("stdout", line)
		},
	}
	err = execute(ctx, stop, cmd, out)
	stderr.flush()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errLineTooLong):
		return nil, errLineTooLong
	case cause != nil:
		return nil, cause
	case wasAskedToEnd(err):
		return nil, interruption{failure(err, stderr.String())}
	case err != nil:
		return nil, failure(err, stderr.String())
	}
	return out.output()
}

func (c *command) prepare(ctx context.Context, input []byte, stderr io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.path, c.args[1:]...) //nolint:gosec // to run the operator's command is what we are for
	cmd.Args[0] = c.args[0]
	cmd.Dir, cmd.Env = c.dir, c.env
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), stderr
	// Stdin and stderr may be held open by processes that the command left
	// behind; they end this long after the command or ctx did.
	cmd.WaitDelay = killAfter
	if parent, state := telemetry.Headers(telemetry.Line(ctx)); parent != "" {
		cmd.Env = append(cmd.Environ(), "TRACEPARENT="+parent, "TRACESTATE="+state)
	}
	lead(cmd)
	return cmd
}

// runLogged runs the command to its end, without input; say gets each line that it prints. It
// returns the end of its standard error, too.
func (c *command) runLogged(ctx context.Context, waitDelay time.Duration, say func(stream, line string)) (cmd *exec.Cmd, stderr string, err error) {
	tailOf := func(stream string) *tail {
		return &tail{most: stderrTail, line: func(line []byte) { say(stream, string(line)) }}
	}
	output, errors := tailOf("stdout"), tailOf("stderr")
	cmd = c.prepare(ctx, nil, errors)
	cmd.Stdin, cmd.Stdout, cmd.WaitDelay = nil, output, waitDelay
	err = cmd.Run()
	output.flush()
	errors.flush()
	return cmd, errors.String(), err
}

// execute runs cmd to its end and reads its output meanwhile. When it returns,
// nothing of cmd's group is left. It ends ctx by stop if the output cannot be
// taken.
func execute(ctx context.Context, stop context.CancelCauseFunc, cmd *exec.Cmd, out *results) error {
	stdout, write, err := os.Pipe()
	if err != nil {
		return unstarted{fmt.Errorf("start command: %w", err)}
	}
	defer func() { _ = stdout.Close() }()
	cmd.Stdout = write
	err = cmd.Start()
	_ = write.Close() // the command has its own, or was not started
	if err != nil {
		return unstarted{fmt.Errorf("start command: %w", err)}
	}

	read := make(chan struct{})
	go func() { // waited for below
		defer close(read)
		if err := out.readFrom(&lingering{pipe: stdout, time: lingerFor, room: lingerBytes}); err != nil {
			stop(err)
		}
	}()
	err = cmd.Wait() // at the end of ctx it kills the command, if SIGTERM does not within WaitDelay
	killGroup(cmd)   // and what the command left behind
	unwanted := context.AfterFunc(ctx, func() { _ = stdout.Close() })
	defer unwanted()
	_ = stdout.SetReadDeadline(time.Now()) // a pipe can do that; see lingering
	<-read
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // the command itself was well
	}
	return err
}

// failure is the error of a job whose command failed.
func failure(err error, stderr string) error {
	if stderr == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, stderr)
}

// lingering reads a command's output to its end. Once the command has ended,
// which a read deadline in the past shows, it reads what is there. It waits for what
// comes from another process that holds the pipe as long as there is time, and reads no
// more than there is room for.
type lingering struct {
	pipe  *os.File
	time  time.Duration
	room  int
	ended bool // the command
}

// Read implements io.Reader.
func (l *lingering) Read(p []byte) (int, error) {
	if !l.ended {
		n, err := l.pipe.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		l.ended = true
	}
	began := time.Now()
	_ = l.pipe.SetReadDeadline(began.Add(l.time))
	n, err := l.pipe.Read(p[:min(len(p), l.room)])
	l.time -= time.Since(began)
	if l.room -= n; l.room == 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}
