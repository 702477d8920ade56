package driver

import (
	"context"
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// watchman is a small process that outlives this program if it is killed: it
// ends what the driver's pods left running, also what they started themselves.
type watchman struct {
	cmd *exec.Cmd
	end io.Closer // of the pipe on which it waits
}

// vigil waits for the end of its stdin, which is our end, and then for the
// grace of the pods; $1 is the mark of their environment. The kernel has asked
// the commands to end by then; what they started is asked here.
const vigil = `
read -r _
marked() { grep -lzFx -e "$1" /proc/[0-9]*/environ 2>/dev/null; }
each() { for f in $2; do p=${f#/proc/}; kill -"$1" "${p%/environ}" 2>/dev/null; done; }
each TERM "$(marked "$1")"
i=0
while [ $i -lt "$2" ] && [ -n "$(marked "$1")" ]; do sleep 1; i=$((i+1)); done
i=0
while [ $i -lt 20 ]; do
  left=$(marked "$1")
  [ -z "$left" ] && exit
  each KILL "$left"
  i=$((i+1))
  sleep 0.2 2>/dev/null || sleep 1
done
`

// newWatchman starts one, in a session of its own so that what ends our group
// does not end it. Without sh there is none, and the next driver does its work.
func (p *Process) newWatchman(ctx context.Context) *watchman {
	mark := fleetVariable + "=" + p.fleet
	//nolint:gosec,noctx // fixed text; it has to outlive every context of ours
	cmd := exec.Command("/bin/sh", "-c", vigil, "flightline-watchman", mark, strconv.Itoa(int(orphanGrace/time.Second)))
	cmd.Env, cmd.Dir = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.log.DebugContext(ctx, "no watchman", "err", err)
		return nil
	}
	return &watchman{cmd: cmd, end: in}
}

// dismiss ends it.
func (w *watchman) dismiss() {
	if w == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.end.Close()
	_ = w.cmd.Wait()
}
