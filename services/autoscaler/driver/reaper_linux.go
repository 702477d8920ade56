package driver

import (
	"context"
	"io"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reaper is a process of this program that outlives it if it is killed, and
// ends what the driver's pods left running, also what they started themselves.
type reaper struct {
	cmd *exec.Cmd
	end io.Closer // of the pipe on which it waits
}

// RunReaper waits until in ends, which is when the program that runs the pods
// has ended. Then it asks the pods whose environment has mark to end, as the driver does
// when it stops them, and kills what goes on after grace. It returns once there is nothing
// left, or after ctx ends (docs/adr/0044-reaper.md).
func RunReaper(ctx context.Context, in io.Reader, mark string, grace time.Duration) error {
	_, _ = io.Copy(io.Discard, in) // an error is an end too
	marked := func(env [][]byte) bool { return hasAll(env, []string{mark}) }
	for _, pid := range matching(marked) {
		if inFirstGroup(pid) {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
	if awaitNone(ctx, grace, lookInterval, marked, 0) == nil {
		return nil
	}
	return killAll(ctx, killTimeout, marked)
}

// inFirstGroup reports whether a process is of the group that leads its session. The
// command of a job is not: its worker, which is asked to end, ends it or lets it finish.
func inFirstGroup(pid int) bool {
	group, err := unix.Getpgid(pid)
	session, gone := unix.Getsid(pid)
	return err == nil && gone == nil && group == session
}

// lookInterval is the pause between two looks at the processes of this host.
const lookInterval = 100 * time.Millisecond

// startReaper starts one, in a session of its own so that what ends our group
// does not end it. Without one, the next driver of the folder does its work.
func (p *Process) startReaper(ctx context.Context) *reaper {
	if len(p.cfg.Reaper) == 0 {
		return nil
	}
	args := append(slices.Clone(p.cfg.Reaper[1:]), fleetVariable+"="+p.fleet, orphanGrace.String())
	cmd := exec.Command(p.cfg.Reaper[0], args...) //nolint:gosec,noctx // this program; it has to outlive every context of ours
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.log.WarnContext(ctx, "no reaper: if this program is killed, what its workers started goes on until the next start", "err", err)
		return nil
	}
	return &reaper{cmd: cmd, end: in}
}

// dismiss ends it.
func (r *reaper) dismiss() {
	if r == nil {
		return
	}
	_ = r.cmd.Process.Kill()
	_ = r.end.Close()
	_ = r.cmd.Wait()
}
