package admin_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/admin"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
	"flightline/streams"
)

func deep(t *testing.T, s *backend.Env) admin.Report {
	t.Helper()
	return doctorOf(t, s.Bus.NC, admin.DoctorConfig{Deep: true})
}

func submit(t *testing.T, s *backend.Env, input string) job.ID {
	t.Helper()
	id := queue.NewID(job.Async)
	if _, err := s.Queue.Submit(t.Context(), s.Endpoint, id, job.Async, job.Request{Input: json.RawMessage(input)}); err != nil {
		t.Fatal(err)
	}
	return id
}

// claim takes the oldest job that waits.
func claim(t *testing.T, s *backend.Env) *queue.Lease {
	t.Helper()
	consumer, err := s.Queue.Consume(t.Context(), s.Endpoint, "w1", 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { consumer.Close(); consumer.Wait() })
	lease, err := consumer.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// restart stops NATS, lets the test change files, and starts it again.
func restart(t *testing.T, s *backend.Env, change func()) {
	t.Helper()
	before := s.Bus.NC.Stats().Reconnects
	s.Bus.Stop()
	change()
	s.Bus.Start()
	testenv.Eventually(t, "the connection is back", func() bool { return s.Bus.NC.Stats().Reconnects > before && s.Bus.NC.IsConnected() })
}

// full is an env with a job of each kind: waiting and running ones with a large
// input, and a job that completed with a large output.
func full(t *testing.T) (s *backend.Env, waiting, running, ended job.ID) {
	t.Helper()
	s = backend.New(t)
	large := `"` + strings.Repeat("x", 300<<10) + `"`
	ended = submit(t, s, `1`)
	if _, err := claim(t, s).Complete(t.Context(), json.RawMessage(large)); err != nil {
		t.Fatal(err)
	}
	running = submit(t, s, large)
	claim(t, s)
	waiting = submit(t, s, large)
	for range 20 {
		submit(t, s, `{"some":"input"}`)
	}
	return s, waiting, running, ended
}

func TestDeepFindsNothingInAWellStore(t *testing.T) {
	t.Parallel()
	s, _, _, _ := full(t)
	for _, f := range deep(t, s).Findings {
		if strings.HasPrefix(f.Check, "deep") && (f.State != admin.OK || !strings.Contains(f.Text, "all can be read and decoded")) {
			t.Errorf("got %+v, want ok", f)
		}
	}
}

// What is damaged is named, with what that means and for whom.
func TestDeepFindsWhatIsDamaged(t *testing.T) {
	t.Parallel()
	type jobs struct{ waiting, running, ended job.ID }
	publish := func(t *testing.T, s *backend.Env, subject, text string) {
		t.Helper()
		if _, err := s.Bus.JS.Publish(t.Context(), subject, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	purge := func(t *testing.T, s *backend.Env, id job.ID) {
		t.Helper()
		stream, err := s.Bus.JS.Stream(t.Context(), streams.Payloads(0))
		if err == nil {
			err = stream.Purge(t.Context(), jetstream.WithPurgeSubject(streams.AnyPayload(0, backend.EndpointID, id)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change := func(t *testing.T, s *backend.Env, stream string, change func([]byte)) {
		t.Helper()
		restart(t, s, func() {
			blocks, err := filepath.Glob(filepath.Join(s.Bus.StreamDir(stream), "msgs", "*.blk"))
			if err != nil || len(blocks) != 1 {
				t.Fatalf("got %v, %v, want one block", blocks, err)
			}
			data, err := os.ReadFile(blocks[0])
			if err == nil {
				change(data)
				err = os.WriteFile(blocks[0], data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	text := func(data []byte) { // the server checks neither times nor sequences
		data[len(data)/2+bytes.Index(data[len(data)/2:], []byte("xxxxxxxx"))] ^= 1
	}
	subject := func(data []byte) int { // where that of a record in the middle is
		return len(data)/2 + bytes.Index(data[len(data)/2:], []byte("jobs."+backend.EndpointID))
	}
	cut := func(data []byte) { // the length of a record
		const sizes = 22
		copy(data[subject(data)-sizes:], []byte{0xff, 0xff, 0xff, 0x7f})
	}
	queued := streams.Jobs(backend.EndpointID)
	tests := map[string]struct {
		harm   func(*backend.Env, jobs)
		stream string
		text   []string
	}{
		"a bit of a waiting job": {
			func(s *backend.Env, _ jobs) { change(t, s, queued, func(data []byte) { data[subject(data)] ^= 1 }) }, queued,
			[]string{"1 messages cannot be read (sequence ", "jobs that waited there are lost"},
		},
		"the length of a waiting job": {
			func(s *backend.Env, _ jobs) { change(t, s, queued, cut) }, "lost " + queued,
			[]string{"NATS found its files damaged and cut off ", "jobs that waited there are lost"},
		},
		"a bit of the payloads": {
			func(s *backend.Env, _ jobs) { change(t, s, streams.Payloads(0), text) }, streams.Payloads(0),
			[]string{"1 messages cannot be read", "large inputs or outputs are lost"},
		},
		"the input of a waiting job": {
			func(s *backend.Env, j jobs) { purge(t, s, j.waiting) }, queued,
			[]string{"1 jobs of endpoint ep", "lack a large input"},
		},
		"the input of a running job": {
			func(s *backend.Env, j jobs) { purge(t, s, j.running) }, queued,
			[]string{"1 jobs of endpoint ep", "lack a large input"},
		},
		"the output of a job": {
			func(s *backend.Env, j jobs) { purge(t, s, j.ended) }, streams.Records(0),
			[]string{"1 jobs of endpoint ep", "lack a large input or output"},
		},
		"the queue message of a running job": {func(s *backend.Env, _ jobs) {
			stream, err := s.Bus.JS.Stream(t.Context(), queued)
			if err == nil {
				err = errors.Join(stream.Purge(t.Context(), jetstream.WithPurgeKeep(20)), streams.MarkRecovered(t.Context(), s.Bus.JS, queued, time.Now().Add(time.Minute)))
			}
			if err != nil {
				t.Fatal(err)
			}
		}, streams.Records(0), []string{"1 jobs of endpoint ep", "not in their queue any more"}},
		"a record": {func(s *backend.Env, j jobs) {
			publish(t, s, streams.RecordSubject(0, backend.EndpointID, j.ended, 1), "garbage")
		}, streams.Records(0), []string{"1 jobs of endpoint ep", "cannot be decoded"}},
		"a setting": {
			func(s *backend.Env, _ jobs) { publish(t, s, "$KV."+streams.BucketKeys+".x", "{no JSON") },
			streams.Bucket(streams.BucketKeys),
			[]string{"1 messages cannot be decoded", "keys"},
		},
		"an event": {func(s *backend.Env, j jobs) {
			publish(t, s, streams.EventSubject(backend.EndpointID, "queued", j.ended, 1, 0), "garbage")
		}, streams.Events, []string{"1 messages cannot be decoded", "events"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, waiting, running, ended := full(t)
			test.harm(s, jobs{waiting, running, ended})
			r := deep(t, s)
			f := found(r, "deep "+test.stream)
			if strings.HasPrefix(test.stream, "lost ") {
				f = found(r, test.stream)
			}
			if f.State != admin.Fail || f.Hint == "" || !r.Failed() {
				t.Errorf("got %+v, want a fail with a hint", f)
			}
			for _, text := range test.text {
				if !strings.Contains(f.Text, text) {
					t.Errorf("got %q, want %q in it", f.Text, text)
				}
			}
			if sum := found(r, "deep"); sum.State != admin.Warn {
				t.Errorf("got %+v, want a warning", sum)
			}
			if t.Failed() {
				t.Logf("all findings: %+v", r.Findings)
			}
		})
	}
}
