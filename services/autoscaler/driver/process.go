package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"

	"flightline/shared/host"
	"flightline/shared/pod"
)

// ErrBusy means that the folder of a Process is another one's, in this program
// or another one.
var ErrBusy = errors.New("driver: the folder is in use")

// ProcessConfig says where a Process keeps its things. Folder is required.
type ProcessConfig struct {
	// Folder holds what is known of the pods, what they wrote, and the id of
	// the machine. It is made if it is absent, for this user only.
	Folder string
	// LogBytes bounds what is kept of one pod's output; twice as much may lie
	// there. 0 means 1 MiB.
	LogBytes int64
	// Log hears what goes wrong. nil means silence.
	Log *slog.Logger
}

const (
	defaultLogBytes = 1 << 20
	// killedWithin bounds the wait for processes that were sent SIGKILL.
	killedWithin = 5 * time.Second
	// orphanGrace is what processes get to end after this program was killed.
	orphanGrace = 3 * time.Second
)

// Names of the variables by which a pod's processes are known, whatever became
// of their parents: "<machine>.<life of the driver>" and the pod's id.
const (
	fleetVariable = "FLIGHTLINE_FLEET"
	podVariable   = "FLIGHTLINE_POD"
)

// Process runs pods as processes of this host, with the rights of this program.
//
// A pod is its command and all that this starts: they share a session, and an
// environment variable by which they are found if they leave it. When the
// command ends, the rest is killed. When this program ends, however it ends,
// its pods end: the kernel tells the command, and a watchman that outlives us
// by seconds kills what goes on; where there is no watchman (no sh, no /proc)
// it is done by the next Process of the same folder, before that starts anything.
//
// A pod gets the environment it is started with, and of ours PATH, HOME, LANG
// and TMPDIR, no more. Limits of its Spec are not enforced, ports not mapped.
type Process struct {
	cfg     ProcessConfig
	log     *slog.Logger
	machine string // of the folder
	fleet   string // value of fleetVariable
	lock    *os.File
	forks   chan fork
	forker  sync.WaitGroup
	watch   *watchman

	looked  sync.Once
	facts   pod.Machine
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
	if cfg.LogBytes <= 0 {
		cfg.LogBytes = defaultLogBytes
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Folder, podsFolder), 0o700); err != nil {
		return nil, fmt.Errorf("process driver: %w", err)
	}
	lock, err := lockFolder(cfg.Folder)
	if err != nil {
		return nil, err
	}
	p := &Process{cfg: cfg, log: cfg.Log, lock: lock, forks: make(chan fork), pods: map[string]*process{}}
	if err := p.recover(ctx); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	p.fleet = p.machine + "." + uuid.NewString()
	p.forker.Go(p.fork)
	p.watch = p.newWatchman(ctx)
	return p, nil
}

// recover reads what an earlier life left, and kills what still runs of it.
func (p *Process) recover(ctx context.Context) error {
	var err error
	if p.machine, err = machineOf(p.cfg.Folder); err != nil {
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
		killRecorded(r)
		r.Ended, r.Code, r.Reason = time.Now().UTC(), -1, "ended with the autoscaler that ran it"
		p.pods[r.PodID] = ended(r)
		if err := p.write(r); err != nil {
			return err
		}
	}
	return killMarked(ctx, fleetVariable+"="+p.machine+".", killedWithin)
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
// It returns when all have ended and nothing of the driver runs any more; a
// second call does nothing.
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

	var stops sync.WaitGroup
	for _, x := range alive {
		stops.Go(func() { x.end(ctx.Done(), p.fleet) })
	}
	stops.Wait()
	p.waiting.Wait()
	close(p.forks)
	p.forker.Wait()
	p.watch.dismiss()
	return p.lock.Close()
}

// Name implements Driver.
func (p *Process) Name() pod.Driver { return pod.Process }

// Machine implements Driver. The id is that of the folder: two drivers on one
// host run their pods apart.
func (p *Process) Machine(ctx context.Context) (string, pod.Machine, error) {
	p.looked.Do(func() { p.facts = host.Look(context.WithoutCancel(ctx), p.log) })
	return p.machine, p.facts, nil
}
