package e2e

import (
	"strings"
	"testing"

	"flightline/shared/job"
)

// pod is a field-by-field look at a pod's record.
func (s *site) pod(id string) (got struct{ DesiredStatus, LastStatusChange string }) {
	s.t.Helper()
	decode(s.t, s.ok("pod", "get", id, "-o", "json"), &got)
	return got
}

// exited waits until the process has ended by itself, with code 0.
func (d *daemon) exited() {
	d.t.Helper()
	for range d.lines { // until its end
	}
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("%v: got %v, want code 0\n%s", d.cmd.Args, err, d.said())
	}
}

// A worker of `flightline worker` in the middle of a long job is drained: that
// job ends well, the next one is another worker's, and the process ends. NATS
// goes away and comes back meanwhile.
func TestADrainedGoWorkerFinishesItsJobAndEnds(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	first := p.worker("first", p.release("first"))
	long := submit(p.site, "work")
	p.until("first starts")
	if got := p.ok("worker", "drain", "work", "first"); got != "DRAINING  first\n" {
		t.Errorf("got %q, want that it drains", got)
	}
	p.nats.Stop()
	p.nats.Start()
	p.eventually("it says that it drains", func() bool {
		code, out, _ := p.run("endpoint", "workers", "work")
		return code == 0 && strings.Contains(out, "yes")
	})
	p.open(p.release("second"))
	p.worker("second", p.release("second"))
	next := submit(p.site, "work")
	if j := p.ended(next); j.Status != job.Completed || j.WorkerID != "second" {
		t.Errorf("the next job: got %s by %q, want COMPLETED by second", j.Status, j.WorkerID)
	}
	p.open(p.release("first"))
	if j := p.ended(long); j.Status != job.Completed || j.WorkerID != "first" || j.Retries != 0 {
		t.Errorf("the long job: got %s by %q, want COMPLETED by first", j.Status, j.WorkerID)
	}
	first.exited()
	if got := p.pod("first"); got.DesiredStatus != "EXITED" || !strings.Contains(got.LastStatusChange, "drained, and left: by request") {
		t.Errorf("got %+v, want EXITED and why", got)
	}
	if n := strings.Count(p.logged(), "first starts"); n != 1 {
		t.Errorf("the drained worker began %d jobs, want 1:\n%s", n, p.logged())
	}
}

// A fleet of the driver process may be of Go workers: they are drained like
// those that speak HTTP, and none is stopped in the middle of a job.
func TestAFleetOfGoWorkersShrinksByDraining(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start("dev", "--no-demo").line(ready)
	s.ok("endpoint", "create", "native", "--driver", "process", "--workers-max", "1", "--idle-timeout", "1s",
		"--", s.binary, "worker", "native", "--data", s.dir+"/.flightline", "--", "sh", "-c", `sleep 2; echo '"done"'`)
	for round := range 2 {
		if got := s.ok("runsync", "native", `{"n":1}`); !strings.Contains(got, "COMPLETED") {
			t.Fatalf("round %d: got %s, want COMPLETED", round, got)
		}
		s.eventually("the fleet is at zero, and says why", func() bool {
			out := s.ok("pod", "list", "--workers")
			return !strings.Contains(out, "RUNNING") && strings.Count(out, "drained") == round+1
		})
	}
	if out := s.ok("pod", "list", "--workers"); strings.Contains(out, "with code") {
		t.Errorf("got %s, want no worker that failed", out)
	}
}
