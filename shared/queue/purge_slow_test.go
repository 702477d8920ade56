package queue

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// Large inputs take long on a slow line to NATS: what waits is read in parts, each of which
// comes in time.
func TestAPurgeOfLargeInputsOverASlowLine(t *testing.T) {
	t.Parallel()
	const jobs, bytesPerSecond = 80, 4 << 20 // 20 MB: 5 s
	input := json.RawMessage(`"` + strings.Repeat("x", maxInlinePayload-2) + `"`)
	for name, paused := range map[string]bool{"that a worker may have": false, "of an endpoint that is paused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = endpoint.MaxLease })
			for range jobs {
				s.submit(t, func(r *job.Request) { r.Input = input })
			}
			if paused {
				s.pause(t, time.Hour)
			}
			q, err := New(t.Context(), testenv.Connect(t, testenv.Slow(t, s.Config(), bytesPerSecond)), Config{})
			if err != nil {
				t.Fatal(err)
			}
			if n, err := q.Purge(t.Context(), s.e); n != jobs || err != nil {
				t.Errorf("got %d jobs purged, %v, want all %d", n, err, jobs)
			}
			if n := s.Messages(t, streams.Jobs(s.e.ID)); n != 0 {
				t.Errorf("got %d messages left, want none", n)
			}
		})
	}
}
