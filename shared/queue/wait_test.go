package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A job that is over is no error because JetStream is away when its end, or what
// is stored beside it, is read.
func TestAWaitSitsOutAnOutageAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	g := &gate{}
	waits := s.queue(t, Config{Durable: g.sync})
	for name, output := range map[string]string{"short": `1`, "beside the record": `"` + strings.Repeat("x", 2*maxInlinePayload) + `"`} {
		id := s.submit(t)
		w, err := waits.Watch(s.e, id)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		if _, err := next(t, s.consumer(t, s.q, name)).Complete(t.Context(), json.RawMessage(output)); err != nil {
			t.Fatal(err)
		}
		g.breakFor(1 << 30)
		before := g.at(streams.Records(0))
		type end struct {
			j   *job.Job
			err error
		}
		ended := make(chan end, 1)
		go func() {
			j, err := w.Wait(t.Context())
			ended <- end{j, err}
		}()
		testenv.Eventually(t, "it meets the outage", func() bool { return g.at(streams.Records(0)) > before || len(ended) > 0 })
		g.breakFor(0)
		testenv.Eventually(t, "it is told", func() bool {
			if err := s.NC.Publish(streams.MovedFirst(s.e.ID, id), nil); err != nil { // spares the pause until the poll
				t.Fatal(err)
			}
			return len(ended) > 0
		})
		if got := <-ended; got.err != nil || got.j.Status != job.Completed || string(got.j.Output) != output {
			t.Errorf("%s: got %+v, %v, want it COMPLETED", name, got.j, got.err)
		}
	}
}

// While its job cannot be read, a wait looks now and then, also once the job's ttl is over:
// hundreds of them would keep each other and JetStream busy.
func TestAWaitDoesNotAskWithoutAPause(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.register(t)
	if err := s.JS.DeleteStream(t.Context(), streams.Jobs(s.e.ID)); err != nil {
		t.Fatal(err)
	}
	reads := testenv.Subscribe(t, s.NC, bus.LeaderGet(streams.Jobs(s.e.ID)))
	w, err := s.q.WatchNew(s.e, NewID(job.Async))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Submitted(&job.Job{Expires: s.q.Now()})
	ctx, cancel := context.WithTimeout(t.Context(), pollInterval/2)
	defer cancel()
	if j, err := w.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %+v, %v, want it to sit that out", j, err)
	}
	if err := s.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := reads.Pending(); err != nil || n != 1 {
		t.Errorf("got %d reads, %v, want one", n, err)
	}
}
