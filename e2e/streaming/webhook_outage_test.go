package streaming

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv/program"
	"flightline/streams"
)

// While no service runs, webhooks wait for longer than the results are kept,
// and are whole when they come.
func TestWebhooksOutliveTheResults(t *testing.T) {
	t.Parallel()
	const jobs = 10
	s := newTold(t)
	s.OK("endpoint", "create", "ep", "--sync-retention", "1s")
	s.Start("worker", "ep", "--concurrency", "4", "--", "cat").Line(program.WorkerReady)
	m := newMailbox(t)
	input := map[string]string{"text": strings.Repeat("x", 300<<10)}
	want, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[job.ID]bool{}
	for range jobs {
		j, err := s.api.RunSync(t.Context(), "ep", client.Request{Input: input, Webhook: m.url}, program.Soon)
		if err != nil || j.Status != job.Completed {
			t.Fatalf("got %+v, %v, want a completed job", j, err)
		}
		ids[j.ID] = true
	}
	s.Eventually("no record is left", func() bool { return s.messages(streams.Records(0)) == 0 })
	if n := s.messages(streams.Webhooks); n != jobs {
		t.Fatalf("got %d webhooks that wait, want %d", n, jobs)
	}
	s.deliver()
	s.Eventually("all came", func() bool { return len(m.first(t)) >= jobs })
	for id, p := range m.first(t) {
		if !ids[id] || string(p.body.Input) != string(want) || !strings.Contains(string(p.body.Output), string(want)) {
			t.Errorf("job %s: got %d bytes of input and %d of output, want %d each at least", id, len(p.body.Input), len(p.body.Output), len(want))
		}
	}
	if got := s.config(streams.Events).MaxAge; got != 2*time.Hour {
		t.Errorf("events are kept for %v, want the 2h of the setting", got)
	}
	if code, _, errs := s.Run("serve", "webhook", "--events-retention", "1m"); code != 2 {
		t.Errorf("--events-retention 1m: got code %d, want 2\n%s", code, errs)
	}
}

func (s *told) config(stream string) jetstream.StreamConfig { return s.info(stream).Config }

func (s *told) messages(stream string) uint64 { return s.info(stream).State.Msgs }

func (s *told) info(stream string) *jetstream.StreamInfo {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), program.Soon)
	defer cancel()
	got, err := s.bus.JS.Stream(ctx, stream)
	if err != nil {
		s.T.Fatal(err)
	}
	return got.CachedInfo()
}
