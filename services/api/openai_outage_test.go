package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/shared/web"
	"flightline/streams"
)

// outage is a barrier that the first reader of a job's end passes, and the next
// two do not.
type outage struct {
	records string
	waits   atomic.Int64
}

func (o *outage) sync(_ context.Context, stream string) error {
	if stream == o.records {
		if n := o.waits.Add(1); n == 2 || n == 3 {
			return errors.New("a disk that takes too long")
		}
	}
	return nil
}

// What is known of a job's end is answered though the rest of it cannot be read
// for a while: an error would make the client submit it again.
func TestAnAnswerSitsOutAnOutageAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t)
	large := `"` + strings.Repeat("x", 600<<10) + `"` // it is stored beside the record
	for name, tc := range map[string]struct {
		body, want string
		quiet      time.Duration
		do         func(*queue.Lease)
	}{
		"chunks":              {`{}`, `{"a":1}`, 0, s.completes(``, `{"a":1}`)},
		"streamed":            {`{"stream":true}`, strings.Trim(large, `"`), patience, s.completes(large)},
		"streamed in silence": {`{"stream":true}`, strings.Trim(large, `"`), 100 * time.Millisecond, s.completes(large)},
	} {
		disk := &outage{records: streams.Records(s.endpoint.Partition)}
		served, err := queue.New(t.Context(), s.bus.Connect(t), queue.Config{Durable: disk.sync})
		if err != nil {
			t.Fatal(err)
		}
		testenv.Background(t, served.Run)
		s.serve(Config{}, Deps{Queue: served, Registry: s.registry, Events: s.at.Events(t)})
		s.service.openAI.MaxSilence = tc.quiet
		s.serveNext(tc.do)
		a := s.ask("POST", chatPath, tc.body)
		if got := strings.ReplaceAll(a.raw, ping, ""); a.status != http.StatusOK || got != tc.want {
			t.Errorf("%s: got %d %.200s, want %.200s", name, a.status, got, tc.want)
		}
		if disk.waits.Load() < 4 {
			t.Errorf("%s: got %d waits for the disk, want the outage to be met", name, disk.waits.Load())
		}
	}
}

// No outage, and no server that stops: nothing brings the output back.
func TestAnOutputThatIsGoneIsAnErrorOfOurs(t *testing.T) {
	t.Parallel()
	s := start(t)
	purge := func(ctx context.Context, stream string) error {
		if stream != streams.Records(s.endpoint.Partition) {
			return nil
		}
		payloads, err := s.bus.JS.Stream(ctx, streams.Payloads(s.endpoint.Partition))
		if err != nil {
			return err
		}
		return payloads.Purge(ctx)
	}
	served, err := queue.New(t.Context(), s.bus.Connect(t), queue.Config{Durable: purge})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, served.Run)
	s.serve(Config{}, Deps{Queue: served, Registry: s.registry, Events: s.at.Events(t)})
	for _, body := range []string{`{}`, `{"stream":true}`} {
		s.serveNext(s.completes(`"` + strings.Repeat("x", 600<<10) + `"`))
		wantOpenAIError(t, s.ask("POST", chatPath, body), http.StatusInternalServerError, "server_error", string(web.Internal))
	}
}

// A job that was queued although nobody heard of it would run beside the one
// that the client submits next.
func TestAJobThatMayHaveBeenQueuedIsCancelled(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.service.openAI.Submit = func(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request) (*job.Job, error) {
		if _, err := s.queue.Submit(ctx, e, id, mode, r); err != nil {
			return nil, err
		}
		return nil, bus.ErrUnavailable
	}
	for _, body := range []string{`{}`, `{"stream":true}`} {
		a := s.ask("POST", chatPath, body)
		wantOpenAIError(t, a, http.StatusServiceUnavailable, "server_error", "unavailable")
		testenv.Eventually(t, "it is cancelled", func() bool {
			j, err := s.queue.Status(t.Context(), s.endpoint, job.ID(a.header.Get("X-Job-Id")))
			return err == nil && j.Status == job.Cancelled
		})
	}
}
