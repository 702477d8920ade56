package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"flightline/shared/host"
	"flightline/shared/pod"
)

// ErrBusy means that the folder of a Process is another one's, in this program
// or another one.
var ErrBusy = errors.New("driver: the folder is in use")

// ProcessConfig says where a Process keeps its things. Folder is required.
type ProcessConfig struct {
	// Folder holds what is known of the pods, and the id of the machine. It is made if it
	// is absent, for this user only.
	Folder string
	// Reaper is the command line that calls RunReaper, to which the mark and the
	// grace are appended. Empty means that there is no reaper. Linux only.
	Reaper []string
	// Log gets what goes wrong. nil means silence.
	Log *slog.Logger
}

const (
	// drainTimeout bounds reading what a pod that ended had written.
	drainTimeout = 2 * time.Second
	// killTimeout bounds the wait for processes that were sent SIGKILL. What goes on hangs in
	// the kernel, as in a GPU driver: no signal ends it.
	killTimeout = 10 * time.Second
	// orphanGrace is what processes get to end after this program was killed.
	orphanGrace = 3 * time.Second
)

// Names of the variables by which a pod's processes are known, whatever became
// of their parents: "<machine>.<place of the folder>.<life of the driver>" and the pod's id.
const (
	fleetVariable = "FLIGHTLINE_FLEET"
	podVariable   = "FLIGHTLINE_POD"
)

// Process runs pods as processes of this host, with the rights of this program.
//
// A pod is its command and all that this starts: they share a session, and an
// environment variable by which they are found if they leave it. When the
// command ends, the rest is killed. When this program ends, however it ends,
// its pods end: the kernel asks the command to, and a reaper that outlives this
// program by seconds kills what goes on. Where there is no reaper (see
// ProcessConfig.Reaper) the next Process of the same folder does it, before it
// starts anything.
//
// A pod gets the environment it is started with, and of ours PATH, HOME, LANG
// and TMPDIR, no more. Limits of its Spec are not enforced, ports not mapped.
type Process struct {
	cfg     ProcessConfig
	log     *slog.Logger
	machine string        // of the folder
	place   string        // what fleetVariable begins with in all lives of this folder, not of a copy
	fleet   string        // value of fleetVariable
	hangs   time.Duration // killTimeout, but in tests
	lock    *os.File
	forks   chan fork
	forker  sync.WaitGroup
	reaping sync.Once // starts reaper with the first pod
	reaper  *reaper

	mu      sync.Mutex
	closed  bool
	pods    map[string]*process
	waiting sync.WaitGroup
}

// fork is a command to start, by the one thread whose end is our end.
type fork struct {
	cmd  *exec.Cmd
	done chan error
}

// NewProcess takes the folder, kills what an earlier Process of it left
// running, and returns a driver that Close ends. It returns ErrBusy if the
// folder is in use.
func NewProcess(ctx context.Context, cfg ProcessConfig) (*Process, error) {
	if cfg.Folder == "" {
		return nil, errors.New("driver: the process driver needs a folder")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if err := os.MkdirAll(filepath.Join(cfg.Folder, podsFolder), 0o700); err != nil {
		return nil, fmt.Errorf("process driver: %w", err)
	}
	lock, err := lockFolder(cfg.Folder)
	if err != nil {
		return nil, err
	}
	p := &Process{cfg: cfg, log: cfg.Log, lock: lock, hangs: killTimeout, forks: make(chan fork), pods: map[string]*process{}}
	if err := p.recover(ctx); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	p.fleet = p.place + uuid.NewString()
	p.forker.Go(p.fork)
	return p, nil
}

// recover reads what an earlier life left, and kills what still runs of it. What runs for the
// folder that this one was copied from is left alone.
func (p *Process) recover(ctx context.Context) error {
	var err error
	if p.machine, err = machineOf(p.cfg.Folder); err != nil {
		return err
	}
	if p.place, err = placeOf(p.machine, p.cfg.Folder); err != nil {
		return err
	}
	kept, err := p.readAll()
	if err != nil {
		return err
	}
	for _, r := range kept {
		if !r.Ended.IsZero() {
			p.pods[r.PodID] = ended(r)
			continue
		}
		if r.Fleet == "" || strings.HasPrefix(r.Fleet, p.place) {
			killRecorded(r)
		}
		r.Ended, r.Code, r.Reason = time.Now().UTC(), -1, "ended with the autoscaler that ran it"
		p.pods[r.PodID] = ended(r)
		if err := p.write(r); err != nil { // the disk may be full; the next life finds it again
			p.log.WarnContext(ctx, "end of a pod not recorded", "pod", r.PodID, "err", err)
		}
	}
	if err := killMarked(ctx, fleetVariable+"="+p.place, killTimeout); err != nil {
		p.log.WarnContext(ctx, "processes of an earlier life go on after SIGKILL", "err", err)
	}
	return nil
}

// fork starts commands from one thread that lives as long as the driver: Linux
// sends a child its Pdeathsig when the thread that forked it ends.
func (p *Process) fork() {
	runtime.LockOSThread() // never unlocked: the thread ends with this function
	for f := range p.forks {
		f.done <- f.cmd.Start()
	}
}

// start starts a command by the forking thread.
func (p *Process) start(cmd *exec.Cmd) error {
	f := fork{cmd: cmd, done: make(chan error, 1)}
	p.forks <- f
	return <-f.done
}

// Close ends all pods: it asks them to, and kills what is left when ctx ends.
// It returns when all have ended and nothing of the driver runs any more, or an error if
// some go on after SIGKILL; the folder is free in any case. A second call does nothing.
func (p *Process) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	var alive []*process
	for _, x := range p.pods {
		if x.running() {
			alive = append(alive, x)
		}
	}
	p.mu.Unlock()

	var stops errgroup.Group
	for _, x := range alive {
		stops.Go(func() error { return p.end(x, ctx.Done()) })
	}
	err := stops.Wait()
	if err == nil {
		p.waiting.Wait()
	}
	close(p.forks)
	p.forker.Wait()
	p.reaper.dismiss()
	return errors.Join(err, p.lock.Close())
}

// Name implements Driver.
func (p *Process) Name() pod.Driver { return pod.Process }

// Machine implements Driver. The id is that of the folder: two drivers on one
// host run their pods apart.
func (p *Process) Machine(ctx context.Context) (string, pod.Machine, error) {
	return p.machine, host.Look(context.WithoutCancel(ctx), p.log), nil
}

var errClosed = errors.New("driver: closed")

// process is one pod, alive or ended.
type process struct {
	done chan struct{} // closed once it ended
	// The rest is nil if an earlier life started it.
	cmd    *exec.Cmd
	end    *tail   // of stderr
	output *Output // nil for none
	gpus   []string

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
// pod.ErrInvalid for a command that cannot be run.
func (p *Process) Start(ctx context.Context, s Start) error {
	used := false
	defer func() {
		if !used {
			s.Output.end()
		}
	}()
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
		s.leave(ctx)
		return nil
	}
	p.reaping.Do(func() { p.reaper = p.startReaper(ctx) })
	x, err := p.launch(context.WithoutCancel(ctx), s, argv)
	if err != nil {
		return fmt.Errorf("start pod %s: %w", s.PodID, err)
	}
	p.pods[s.PodID], used = x, true
	return nil
}

func (p *Process) launch(ctx context.Context, s Start, argv []string) (*process, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pod.ErrInvalid, err)
	}
	end := &tail{conceal: pod.Concealer(s.Env)}
	cmd := &exec.Cmd{Path: path, Args: argv, Env: p.environment(s), Stderr: end, SysProcAttr: leader(), WaitDelay: drainTimeout}
	if s.Output != nil {
		cmd.Stdout, cmd.Stderr = s.Output.Stdout, io.MultiWriter(end, s.Output.Stderr)
	}
	if err := p.start(cmd); err != nil {
		return nil, fmt.Errorf("%w: %w", pod.ErrInvalid, err)
	}
	x := &process{cmd: cmd, done: make(chan struct{}), end: end, output: s.Output, gpus: s.gpuUUIDs(), record: record{
		PodID: s.PodID, Endpoint: s.Endpoint, Life: s.Life, PID: cmd.Process.Pid, Started: time.Now().UTC(),
		Fleet: p.fleet, Birth: birthOf(cmd.Process.Pid), Boot: bootID(),
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
	return environ(all)
}

// marks are the variables by which the processes of a pod are known.
func (p *Process) marks(x *process) []string {
	return []string{fleetVariable + "=" + p.fleet, podVariable + "=" + x.record.PodID}
}

// wait sees to the end of a pod: the rest of it is killed, how it ended kept.
func (p *Process) wait(ctx context.Context, x *process) {
	defer close(x.done)
	awaitExit(x.cmd)
	killGroup(x.cmd.Process.Pid) // before its number is free
	if err := killMarkedAll(ctx, p.marks(x), killTimeout); err != nil {
		p.log.WarnContext(ctx, "processes of a pod that ended go on", "pod", x.record.PodID, "err", err)
	}
	_ = x.cmd.Wait() // and for what it wrote, unless somebody keeps its outputs open
	x.output.end()

	x.mu.Lock()
	defer x.mu.Unlock()
	x.record.Ended = time.Now().UTC()
	x.record.Code, x.record.Reason = x.cmd.ProcessState.ExitCode(), x.end.text()
	if x.record.Code < 0 { // a signal has no code
		x.record.Reason = strings.TrimSuffix(x.cmd.ProcessState.String()+": "+x.record.Reason, ": ")
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
	stopped := make(chan error, 1)
	p.waiting.Go(func() { // goes on when ctx ends, so that grace is kept
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		stopped <- p.end(x, late.Done())
	})
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end asks the pod to end, and kills it when late is closed. It returns when
// it has ended, or an error if it goes on.
func (p *Process) end(x *process, late <-chan struct{}) error {
	if x.running() {
		terminateGroup(x.cmd.Process.Pid)
	}
	select {
	case <-x.done:
		return nil
	case <-late:
	}
	again, hangs := time.NewTicker(time.Second), time.NewTimer(p.hangs)
	defer again.Stop()
	defer hangs.Stop()
	for {
		if x.running() {
			killPod(x.cmd.Process.Pid, p.marks(x))
		}
		select {
		case <-x.done:
			return nil
		case <-again.C: // what it forked while we looked
		case <-hangs.C:
			return fmt.Errorf("pod %s: process %d goes on after SIGKILL", x.record.PodID, x.cmd.Process.Pid)
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
		Code: x.record.Code, Reason: x.record.Reason, Started: x.record.Started, GPUs: x.gpus,
	}
}

// Forget implements Driver. It refuses a pod that runs.
func (p *Process) Forget(_ context.Context, podID string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.pods[podID]; x != nil && x.running() {
		return fmt.Errorf("forget pod %s: %w: it runs", podID, pod.ErrConflict)
	}
	delete(p.pods, podID)
	return p.erase(podID)
}
