package system

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"flightline/shared/retry"
)

// process is a program that the test started.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string        // the file with what it prints
	gone   chan struct{} // closed once it has ended
	harmed atomic.Bool   // the test ended it
}

const (
	// readyTimeout bounds the start of a process on a busy machine.
	readyTimeout = 90 * time.Second
	// pollInterval is the pause between two looks at something.
	pollInterval = 50 * time.Millisecond
)

// start starts a program in the folder of the world. Of the test's environment
// it gets no setting of Flightline or NATS.
func (w *world) start(name string, env []string, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(w.dir, name+".log"), gone: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()                      //nolint:errcheck // the process has its own
	p.cmd = exec.Command(program, args...) //nolint:gosec,noctx // what the test built; close ends it
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = w.dir, out, out
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "FLIGHTLINE_") && !strings.HasPrefix(entry, "NATS_") {
			p.cmd.Env = append(p.cmd.Env, entry)
		}
	}
	p.cmd.Env = append(append(p.cmd.Env, env...), Plant(w.cfg.plant))
	endWithParent(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	w.mu.Lock()
	w.running = append(w.running, p)
	w.mu.Unlock()
	w.ends.Go(func() {
		_ = p.cmd.Wait()
		close(p.gone)
		if !p.harmed.Load() {
			w.violate(ruleProcess, "%s ended by itself: %s: %s", p.name, p.cmd.ProcessState, p.lastLine())
		}
	})
	return p, nil
}

// lastLine is the end of what the process printed.
func (p *process) lastLine() string {
	text, _ := os.ReadFile(p.log)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(lines[len(lines)-1])
}

// says waits until the process has printed the text.
func (p *process) says(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		printed, err := os.ReadFile(p.log)
		if err == nil && bytes.Contains(printed, []byte(text)) {
			return nil
		}
		select {
		case <-p.gone:
			return fmt.Errorf("%s ended before it said %q: %s", p.name, text, p.lastLine())
		default:
		}
		if !wait(ctx, pollInterval) {
			return fmt.Errorf("%s did not say %q within %s: %w", p.name, text, readyTimeout, ctx.Err())
		}
	}
}

// kill ends the process by SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.harmed.Store(true)
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.gone
}

// wasKilled reports whether a signal ended the process.
func (p *process) wasKilled() bool {
	select {
	case <-p.gone:
		return p.cmd.ProcessState.ExitCode() < 0
	default:
		return false
	}
}

// ask asks the process to end by SIGTERM.
func (p *process) ask() error {
	p.harmed.Store(true)
	return p.signal(terminate)
}

// freeze stops the process until thaw.
func (p *process) freeze() error { return p.signal(stop) }

func (p *process) thaw() error { return p.signal(resume) }

// ended waits for the end of a process that was asked to, which must be with
// code 0 and in time.
func (p *process) ended(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-p.gone:
	case <-ctx.Done():
		return fmt.Errorf("%s did not end within %s of SIGTERM", p.name, within)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s ended with %s after SIGTERM, want code 0: %s", p.name, p.cmd.ProcessState, p.lastLine())
	}
	return nil
}

// output runs a program to its end and returns what it prints.
func (w *world) output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // what the test built
	cmd.Dir = w.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(text), nil
}

// wait reports whether d passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool { return retry.Sleep(ctx, d) == nil }

// until repeats try until it returns nil, and returns its last error if it
// does not within that time.
func until(ctx context.Context, within time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := retry.Do(ctx, retry.Every(pollInterval), func(error) bool { return true }, try)
	if err != nil {
		return fmt.Errorf("not within %s: %w", within, err)
	}
	return nil
}
