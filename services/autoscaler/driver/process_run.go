package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"flightline/shared/pod"
)

var errClosed = errors.New("driver: closed")

// process is one pod, alive or ended.
type process struct {
	cmd  *exec.Cmd     // nil if an earlier life started it
	done chan struct{} // closed once it ended
	log  *podLog       // nil if an earlier life started it

	mu     sync.Mutex
	record record
}

func ended(r record) *process {
	x := &process{done: make(chan struct{}), record: r}
	close(x.done)
	return x
}

func (x *process) running() bool {
	select {
	case <-x.done:
		return false
	default:
		return true
	}
}

// Start implements Driver. The command is looked up in our PATH. It returns a
// pod.ErrInvalid for one that cannot be run.
func (p *Process) Start(ctx context.Context, s Start) error {
	if !pod.ValidID(s.PodID) {
		return fmt.Errorf("%w: pod id %q", pod.ErrInvalid, s.PodID)
	}
	argv := slices.Concat(s.Spec.Entrypoint, s.Spec.Command)
	if len(argv) == 0 {
		return fmt.Errorf("%w: pod %s has no command", pod.ErrInvalid, s.PodID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if x := p.pods[s.PodID]; x != nil && x.running() {
		return nil
	}
	x, err := p.launch(context.WithoutCancel(ctx), s, argv)
	if err != nil {
		return fmt.Errorf("start pod %s: %w", s.PodID, err)
	}
	p.pods[s.PodID] = x
	return nil
}

func (p *Process) launch(ctx context.Context, s Start, argv []string) (*process, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pod.ErrInvalid, err)
	}
	log, err := p.openLog(s.PodID)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: path, Args: argv, Env: p.environment(s), Stdout: log.out.w, Stderr: log.err.w, SysProcAttr: leader(),
	}
	err = p.start(cmd)
	log.started()
	if err != nil {
		log.close(0)
		return nil, fmt.Errorf("%w: %w", pod.ErrInvalid, err)
	}
	x := &process{cmd: cmd, done: make(chan struct{}), log: log, record: record{
		PodID: s.PodID, Endpoint: s.Endpoint, Life: s.Life, PID: cmd.Process.Pid, Started: time.Now().UTC(),
		Birth: birthOf(cmd.Process.Pid), Boot: bootID(),
	}}
	if err := p.write(x.record); err != nil {
		p.log.WarnContext(ctx, "pod not recorded, it is found by its environment", "pod", s.PodID, "err", err)
	}
	p.waiting.Go(func() { p.wait(ctx, x) })
	return x, nil
}

// environment is that of the pod: what it is started with, where programs and
// files of this host are, and how its processes are known.
func (p *Process) environment(s Start) []string {
	all := map[string]string{}
	for _, v := range os.Environ() {
		switch name, value, _ := strings.Cut(v, "="); name {
		case "PATH", "HOME", "LANG", "TMPDIR":
			all[name] = value
		}
	}
	maps.Copy(all, s.Env)
	all[fleetVariable], all[podVariable] = p.fleet, s.PodID
	env := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env
}

// wait sees to the end of a pod: the rest of it is killed, how it ended kept.
func (p *Process) wait(ctx context.Context, x *process) {
	defer close(x.done)
	pid := x.cmd.Process.Pid
	awaitExit(pid)
	killGroup(pid) // before its number is free
	_ = x.cmd.Wait()
	marks := []string{fleetVariable + "=" + p.fleet, podVariable + "=" + x.record.PodID}
	if err := killMarkedAll(ctx, marks, killedWithin); err != nil {
		p.log.WarnContext(ctx, "processes of a pod that ended go on", "pod", x.record.PodID, "err", err)
	}
	x.log.close(drainWithin)

	x.mu.Lock()
	defer x.mu.Unlock()
	x.record.Ended = time.Now().UTC()
	x.record.Code, x.record.Reason = x.cmd.ProcessState.ExitCode(), x.log.tail()
	if x.record.Code < 0 && x.record.Reason == "" {
		x.record.Reason = x.cmd.ProcessState.String()
	}
	if err := p.write(x.record); err != nil {
		p.log.WarnContext(ctx, "end of a pod not recorded", "pod", x.record.PodID, "err", err)
	}
}

// Stop implements Driver.
func (p *Process) Stop(ctx context.Context, podID string, grace time.Duration) error {
	p.mu.Lock()
	x := p.pods[podID]
	p.mu.Unlock()
	if x == nil || !x.running() {
		return nil
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	stopped := make(chan struct{})
	p.waiting.Go(func() { // goes on when ctx ends, so that grace is kept
		defer close(stopped)
		x.end(late.Done(), p.fleet)
	})
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end asks the pod to end, and kills it when late is closed. It returns when
// it has ended.
func (x *process) end(late <-chan struct{}, fleet string) {
	terminateGroup(x.cmd.Process.Pid, x.done)
	select {
	case <-x.done:
		return
	case <-late:
	}
	for again := time.NewTicker(time.Second); ; {
		killPod(x.cmd.Process.Pid, []string{fleetVariable + "=" + fleet, podVariable + "=" + x.record.PodID}, x.done)
		select {
		case <-x.done:
			again.Stop()
			return
		case <-again.C: // what it forked while we looked
		}
	}
}

// List implements Driver.
func (p *Process) List(context.Context) ([]Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Instance, 0, len(p.pods))
	for _, id := range slices.Sorted(maps.Keys(p.pods)) {
		all = append(all, p.pods[id].instance())
	}
	return all, nil
}

func (x *process) instance() Instance {
	running := x.running()
	x.mu.Lock()
	defer x.mu.Unlock()
	return Instance{
		PodID: x.record.PodID, Endpoint: x.record.Endpoint, Life: x.record.Life, Running: running,
		Code: x.record.Code, Reason: x.record.Reason, Started: x.record.Started, Ended: x.record.Ended,
	}
}

// Forget implements Driver. One that runs is not forgotten.
func (p *Process) Forget(_ context.Context, podID string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.pods[podID]; x != nil && x.running() {
		return fmt.Errorf("forget pod %s: %w: it runs", podID, pod.ErrConflict)
	}
	delete(p.pods, podID)
	return p.erase(podID)
}
