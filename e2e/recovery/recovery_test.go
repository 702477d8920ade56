package recovery

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv/program"
)

// inTime tries up to three times to see something happen within what is
// promised: a busy machine may be late once, a broken promise always.
func inTime(t *testing.T, promise time.Duration, try func(n string) (took time.Duration)) {
	t.Helper()
	const tries = 3
	for n := range tries {
		took := try(strconv.Itoa(n + 1))
		if took <= promise {
			return
		}
		t.Logf("try %d took %v", n+1, took)
	}
	t.Errorf("it took more than %v each time", promise)
}

// It is asked for a second whether it lives, once its lease is over.
func TestKilledWorkersJobRunsElsewhereWithinItsLeaseAndTwoSeconds(t *testing.T) {
	t.Parallel()
	p := program.NewInstallation(t)
	inTime(t, program.LeaseMs*time.Millisecond+2*time.Second, func(n string) time.Duration {
		release := p.Release("go" + n)
		first := p.Worker("first"+n, release)
		id := program.Submit(p.Env, "work")
		p.Until("first" + n + " starts")
		second := p.Worker("second"+n, release)
		// The second must have been served for a lease to be sure that the first
		// is lost; a worker that has been up for a while is.
		up := time.NewTimer(program.LeaseMs * time.Millisecond)
		<-up.C
		first.Kill()
		took := p.Until("second" + n + " starts")
		p.Open(release)
		if j := p.Ended(id); j.Status != job.Completed || j.Retries != 1 || j.WorkerID != "second"+n {
			t.Errorf("got %+v, want COMPLETED by second%s with 1 retry", j, n)
		}
		second.Stop(program.StopWithin)
		return took
	})
}

func TestStoppedWorkersJobRunsElsewhereWithinASecondUncounted(t *testing.T) {
	p := program.NewInstallation(t)
	inTime(t, time.Second+100*time.Millisecond, func(n string) time.Duration { // its grace is 100 ms
		release := p.Release("go" + n)
		first := p.Worker("first"+n, release)
		id := program.Submit(p.Env, "work")
		p.Until("first" + n + " starts")
		second := p.Worker("second"+n, release)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			first.Stop(program.StopWithin)
		}()
		took := p.Until("second" + n + " starts")
		<-stopped
		p.Open(release)
		if j := p.Ended(id); j.Status != job.Completed || j.WorkerID != "second"+n {
			t.Errorf("got %+v, want COMPLETED by second%s", j, n)
		}
		second.Stop(program.StopWithin)
		return took
	})
}

func TestCancelReachesARunningHandlerWithinASecond(t *testing.T) {
	p := program.NewInstallation(t)
	inTime(t, time.Second, func(n string) time.Duration {
		worker := p.Worker("first"+n, p.Release("never"))
		id := program.Submit(p.Env, "work")
		p.Until("first" + n + " starts")
		if _, err := p.Client.Cancel(t.Context(), "work", job.ID(id)); err != nil {
			t.Fatal(err)
		}
		took := p.Until("first" + n + " is asked to stop")
		if j := p.Ended(id); j.Status != job.Cancelled {
			t.Errorf("got %+v, want CANCELLED", j)
		}
		worker.Stop(program.StopWithin)
		return took
	})
}

func TestNATSAwayForTenSecondsIsA503AndThenAllResumes(t *testing.T) {
	t.Parallel()
	p := program.NewInstallation(t)
	release := p.Release("go")
	p.Worker("first", release)
	running := program.Submit(p.Env, "work")
	p.Until("first starts")
	waiting := program.Submit(p.Env, "work")

	p.NATS.Stop()
	away := time.NewTimer(10 * time.Second)
	for refused := 0; ; refused++ {
		began := time.Now()
		_, err := p.Client.Run(t.Context(), "work", client.Request{Input: map[string]int{"n": 1}})
		took := time.Since(began)
		problem, ok := errors.AsType[*client.Error](err)
		if !ok || problem.Status != http.StatusServiceUnavailable || problem.RetryAfter <= 0 || took > 5*time.Second {
			t.Fatalf("got %v after %v, want 503 with Retry-After within 5 s", err, took)
		}
		select {
		case <-away.C:
		default:
			continue
		}
		if refused == 0 {
			t.Fatal("no submission met the outage")
		}
		break
	}
	p.NATS.Start()
	p.Open(release)
	for _, id := range []string{running, waiting} {
		if j := p.Ended(id); j.Status != job.Completed || j.Retries != 0 {
			t.Errorf("got %+v, want COMPLETED without a retry", j)
		}
	}
	after := program.Submit(p.Env, "work")
	if j := p.Ended(after); j.Status != job.Completed {
		t.Errorf("after the outage: got %+v, want COMPLETED", j)
	}
	if n := strings.Count(p.Logged(), "starts\n"); n != 3 {
		t.Errorf("the handler ran %d times for 3 jobs:\n%s", n, p.Logged())
	}
}
