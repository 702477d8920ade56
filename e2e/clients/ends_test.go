package clients

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
)

func TestStoppedJobsStopTheirHandler(t *testing.T) {
	t.Parallel()
	b := newBench(t, script)
	b.start("sleeper")
	id := b.submit(input{"seconds": 600})
	b.noted("start", id, 1)
	if _, err := b.s.api.Cancel(t.Context(), b.endpoint, id); err != nil {
		t.Fatal(err)
	}
	b.noted("cancelled", id, 1)
	b.until(id, job.Cancelled)

	id = b.submit(input{"seconds": 600}, client.Policy{ExecutionTimeout: 5 * time.Second})
	b.until(id, job.TimedOut)
	b.noted("cancelled", id, 1)
	b.completes(b.submit(input{"n": 1}), `{"n":1}`) // the worker goes on
	b.ran(id, 1)
	if got := strings.Count(b.notes(), "end "); got != 1 {
		t.Errorf("got %d handlers that came to their end, want 1", got)
	}
}

func TestALostWorkersJobRunsElsewhere(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(b *bench, w *pyWorker) job.ID{
		"os._exit in the handler": func(b *bench, _ *pyWorker) job.ID { return b.submit(input{"do": "exit"}) },
		"SIGKILL in mid-job": func(b *bench, w *pyWorker) job.ID {
			id := b.submit(input{"wait": true})
			b.noted("start", id, 1)
			w.kill()
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, script)
			w := b.start("plain")
			id := lose(b, w)
			<-w.ended
			b.ran(id, 1)
			b.letGo()
			b.start("sleeper") // does not look at what to do
			if j := b.until(id, job.Completed); j.Retries != 1 {
				t.Errorf("got %d retries, want 1", j.Retries)
			}
			b.ran(id, 2)
			b.counts(1, 0)
		})
	}
}

// What is left of a bare worker pings for ever, and cannot poll. A handler that blocks
// does not poll either, and keeps its job for as long.
func TestPingsAloneKeepNoJobForEver(t *testing.T) {
	t.Parallel()
	blocked := newBench(t, script)
	blocked.start("plain")
	slow := blocked.submit(input{"wait": true, "n": 1})
	blocked.noted("start", slow, 1)

	b := newBench(t, script)
	w := b.start("sleeper")
	id := b.submit(input{"seconds": 600})
	b.noted("start", id, 1)
	began := time.Now()
	b.eventually("the job has run for a while", func() bool { return time.Since(began) > 3*time.Second }) // docs/adr/0048
	w.bare.Store(true)
	w.signal(t, syscall.SIGKILL)
	<-w.ended
	b.start("plain")
	if j := b.until(id, job.Completed); j.Retries != 1 {
		t.Errorf("got %d retries, want 1", j.Retries)
	}

	blocked.letGo()
	if j := blocked.until(slow, job.Completed); j.Retries != 0 {
		t.Errorf("a job whose handler blocks: got %d retries, want 0", j.Retries)
	}
	blocked.ran(slow, 1)
}

func TestAWorkerThatRefreshesLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, script)
	w := b.start("refreshing")
	first := b.submit(input{"n": 1})
	b.completes(first, `{"n":1}`)
	second := b.submit(input{"n": 2}) // while it leaves
	w.stops(t, 15*time.Second)        // and not only when its poll of 20 s is over
	b.start("plain")
	if j := b.completes(second, `{"n":2}`); j.Retries != 0 {
		t.Errorf("got %d retries, want 0: a worker that leaves should be given no job", j.Retries)
	}
	third := b.submit(input{"do": "refresh"}) // the SDK goes on then
	b.completes(third, `{"done":true}`)
	for _, id := range []job.ID{first, second, third} {
		b.ran(id, 1)
	}
	b.counts(3, 0)
}

func TestSIGTERMDuringAnIdleTake(t *testing.T) {
	t.Parallel()
	for name, drained := range map[string]bool{"drained before": true, "all of a sudden": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, script)
			w := b.start("plain")
			if drained {
				if _, err := b.s.api.Workers().Drain(t.Context(), b.endpoint, w.id); err != nil {
					t.Fatal(err)
				}
			}
			w.signal(t, syscall.SIGTERM)
			id := b.submit(input{"n": 1})
			b.start("plain")
			j := b.completes(id, `{"n":1}`)
			if drained && j.Retries != 0 {
				t.Errorf("got %d retries, want 0: the worker should not have been given the job", j.Retries)
			}
			b.ran(id, 1)
			b.counts(1, 0)
			w.stops(t, soon)
		})
	}
}
