package recovery

import (
	"strings"
	"testing"
	"time"

	"flightline/e2e/chaos/ledger"
	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
)

// podOf is a field-by-field look at a pod's record.
func podOf(s *program.Env, id string) (got struct{ DesiredStatus, LastStatusChange string }) {
	s.T.Helper()
	program.Decode(s.T, s.OK("pod", "get", id, "-o", "json"), &got)
	return got
}

// exited waits until the process has ended by itself, with code 0.
func exited(d *program.Process) {
	d.T.Helper()
	for range d.Lines { // until its end
	}
	if err := d.Cmd.Wait(); err != nil {
		d.T.Errorf("%v: got %v, want code 0\n%s", d.Cmd.Args, err, d.Said())
	}
}

// A worker of `flightline worker` in the middle of a long job is drained: that
// job ends well, the next one is another worker's, and the process ends. NATS
// goes away and comes back meanwhile.
func TestADrainedGoWorkerFinishesItsJobAndEnds(t *testing.T) {
	t.Parallel()
	p := program.NewInstallation(t)
	first := p.Worker("first", p.Release("first"))
	long := program.Submit(p.Env, "work")
	p.Until("first starts")
	if got := p.OK("worker", "drain", "work", "first"); got != "DRAINING  first\n" {
		t.Errorf("got %q, want that it drains", got)
	}
	p.NATS.Stop()
	p.NATS.Start()
	p.Eventually("it says that it drains", func() bool {
		code, out, _ := p.Run("endpoint", "workers", "work")
		return code == 0 && strings.Contains(out, "yes")
	})
	p.Open(p.Release("second"))
	p.Worker("second", p.Release("second"))
	next := program.Submit(p.Env, "work")
	if j := p.Ended(next); j.Status != job.Completed || j.WorkerID != "second" {
		t.Errorf("the next job: got %s by %q, want COMPLETED by second", j.Status, j.WorkerID)
	}
	p.Open(p.Release("first"))
	if j := p.Ended(long); j.Status != job.Completed || j.WorkerID != "first" || j.Retries != 0 {
		t.Errorf("the long job: got %s by %q, want COMPLETED by first", j.Status, j.WorkerID)
	}
	exited(first)
	if got := podOf(p.Env, "first"); got.DesiredStatus != "EXITED" || !strings.Contains(got.LastStatusChange, "drained, and left: by request") {
		t.Errorf("got %+v, want EXITED and why", got)
	}
	if n := strings.Count(p.Logged(), "first starts"); n != 1 {
		t.Errorf("the drained worker began %d jobs, want 1:\n%s", n, p.Logged())
	}
}

// A fleet of the driver process may be of Go workers: they are drained like
// those that speak HTTP, and none is stopped in the middle of a job.
func TestAFleetOfGoWorkersShrinksByDraining(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	s.Start("dev", "--no-demo").Line(program.Ready)
	s.OK("endpoint", "create", "native", "--driver", "process", "--workers-max", "1", "--idle-timeout", "1s",
		"--", s.Binary, "worker", "native", "--data", s.Dir+"/.flightline", "--", "sh", "-c", `sleep 2; echo '"done"'`)
	// A drained worker ends by itself, or is stopped first where the machine is slow:
	// then its pod is TERMINATED, which lists leave out.
	listed := func() string {
		return s.OK("pod", "list", "--workers") + s.OK("pod", "list", "--workers", "--status", "terminated")
	}
	for round := range 2 {
		if got := s.OK("runsync", "native", `{"n":1}`); !strings.Contains(got, "COMPLETED") {
			t.Fatalf("round %d: got %s, want COMPLETED", round, got)
		}
		testenv.EventuallyNone(t, func() string {
			out := listed()
			if !strings.Contains(out, "RUNNING") && strings.Count(out, "drained") == round+1 {
				return ""
			}
			return "a fleet that is not at zero, or does not say why:\n" + out
		})
	}
	if out := listed(); strings.Contains(out, "with code") {
		t.Errorf("got %s, want no worker that failed", out)
	}
}

// A worker of a fleet, which speaks RunPod's protocol, is stopped in the middle of a job.
// NATS is away for longer than the record of a silent worker lives, and the job goes on
// for longer than the default of --worker-drain-timeout: the worker still ends it.
func TestAStoppedWorkerEndsItsJobThroughAnOutage(t *testing.T) {
	t.Parallel()
	p := program.NewInstallation(t)
	release, poller := p.Release("job"), program.Build(t, "flightline/e2e/chaos/poller")
	p.OK("endpoint", "update", "work", "--driver", "process", "--workers-max", "1", "--", poller, p.Release("ledger"))
	p.Start("serve", "autoscaler", "gateway", "--drivers", "process", "--worker-drain-timeout", "10m").Line(program.Ready)
	j, err := p.Client.Run(t.Context(), "work", client.Request{Input: ledger.Input{Milliseconds: 180_000, Gate: release}})
	if err != nil {
		t.Fatal(err)
	}
	p.Eventually("the job runs", func() bool {
		now, err := p.Client.Status(t.Context(), "work", j.ID)
		if err == nil {
			j = now
		}
		return j.Status == job.InProgress
	})
	stopped := time.Now()
	p.OK("pod", "stop", j.WorkerID)
	p.NATS.Stop()
	away := time.Now()
	p.Eventually("the worker's record has expired", func() bool { return time.Since(away) > 3*registry.BeatEvery })
	p.NATS.Start()
	p.Eventually("the worker is heard of again", func() bool {
		code, out, _ := p.Run("health", "work", "-o", "json")
		return code == 0 && strings.Contains(out, `"running":1`)
	})
	p.Eventually("the default is over", func() bool { return time.Since(stopped) > 30*time.Second })
	p.Open(release)
	if got := p.Ended(string(j.ID)); got.Status != job.Completed || got.WorkerID != j.WorkerID || got.Retries != 0 {
		t.Errorf("got %s by %q with %d retries, want COMPLETED by %s", got.Status, got.WorkerID, got.Retries, j.WorkerID)
	}
}
