package queue

import (
	"encoding/json"
	"strings"
	"testing"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A job that is over is no error because JetStream is away when its end, or what
// lies beside it, is read.
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
