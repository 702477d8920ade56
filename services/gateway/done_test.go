package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
)

func TestWhatAWorkerPostsBecomesTheRecord(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	for body, want := range map[string]struct {
		status       job.Status
		output, text string
	}{
		`{"output": {"x": NaN, "y": [Infinity, -Infinity]}}`: {job.Completed, `{"x":null,"y":[null,null]}`, ""},
		`{}`:                                {job.Completed, ``, ""},
		`{"error": {"code": 4}}`:            {job.Failed, "", `{"code":4}`},
		`{"output": {"a":1}, "error": "e"}`: {job.Failed, `{"a":1}`, "e"},
		`{"output": {}, "error": "e"}`:      {job.Failed, "", "e"},
		`this is no JSON`:                   {job.Failed, "", unreadable + ": 15 bytes, invalid character 'h' in literal true (expecting 'r')"},
	} {
		id := s.submit()
		w.take()
		w.done(id, body)
		s.is(id, want.status, want.output, want.text)
	}
}

func TestAnEncodedResultSaysSo(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{})
	w := s.worker("w1", g)
	id := s.submit()
	w.take()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.base+"/job-done/w1/"+id, strings.NewReader("\x1f\x8b\x08"))
	must(t, err)
	req.Header.Set("Authorization", w.token)
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	must(t, resp.Body.Close())
	s.is(id, job.Failed, "", unreadable+`: its Content-Encoding is "gzip"; send it as it is`)
}

func TestAFailedJobCanBeRetriedWithItsInput(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	id := s.submit(func(r *job.Request) { r.S3Config = json.RawMessage(`{"accessId":"a"}`) })
	w.take()
	w.done(id, `{"error":"no"}`)
	_, err := s.queue.Retry(t.Context(), s.endpoint, job.ID(id), "")
	must(t, err)
	got := w.take()
	if got.ID != id || string(got.Input) != `{"n": 1}` || string(got.S3Config) != `{"accessId":"a"}` {
		t.Errorf("got %+v, want the same job again", got)
	}
	w.done(id, `{"output":1}`)
	s.is(id, job.Completed, "1", "")
}

func TestProgressIsSeenUntilTheEndAndNeverAfter(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{})
	w := s.worker("w1", g)
	id := s.submit()
	w.take()
	w.done(id, `{"status":"IN_PROGRESS","output":"50 %"}`)
	s.is(id, job.InProgress, `"50 %"`, "")
	w.done(id, `{"status":"IN_PROGRESS","output":"`+strings.Repeat("x", job.MaxProgress)+`"}`)
	s.is(id, job.InProgress, `"50 %"`, "")
	w.done(id, `{"output":"all"}`)
	w.done(id, `{"status":"IN_PROGRESS","output":"60 %"}`)
	s.is(id, job.Completed, `"all"`, "")
	if got := g.service.counts.dropped.Load(); got != 2 {
		t.Errorf("got %d dropped, want 2", got)
	}
}

func TestLateStaleAndRepeatedPostsAreDropped(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{})
	w, other := s.worker("w1", g), s.worker("w2", g)
	id := s.submit()
	w.take()
	other.done(id, `{"output":"of another worker"}`)
	s.is(id, job.InProgress, "", "")
	w.done(id, `{"output":"first"}`)
	w.done(id, `{"output":"second"}`)
	w.done(id, `{"error":"third"}`)
	w.emit(id, `{"output":"chunk"}`)
	s.is(id, job.Completed, `"first"`, "")
	w.done("no-such-job", `{"output":1}`)
	w.done("not%20an%20id", `{"output":1}`)
	w.emit("no-such-job", `{"output":1}`)
	cancelled := s.submit()
	w.take()
	_, err := s.queue.Cancel(t.Context(), s.endpoint, job.ID(cancelled))
	must(t, err)
	w.emit(cancelled, `{"output":1}`)
	w.done(cancelled, `{"output":1}`)
	s.is(cancelled, job.Cancelled, "", "")
	if got := g.service.counts.dropped.Load(); got != 9 {
		t.Errorf("got %d dropped, want 9", got)
	}
}

// result posts what has exactly size bytes as the output of a new job.
func (w *worker) result(size int) (id string) {
	w.s.t.Helper()
	id = w.s.submit()
	w.take()
	w.done(id, `{"output": "`+strings.Repeat("x", size-2)+`"}`)
	return id
}

func TestResultsUpTo20MBAreKeptByteForByte(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{Hold: patience})) // a post waits as long
	id := w.result(job.MaxOutput)
	if j := s.status(id); j.Status != job.Completed || string(j.Output) != `"`+strings.Repeat("x", job.MaxOutput-2)+`"` {
		t.Errorf("got %s with %d bytes, %s", j.Status, len(j.Output), j.Error)
	}
}

func TestALargerResultFailsTheJobAndTheWorkerGoesOn(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{Hold: patience})
	w := s.worker("w1", g)
	for _, size := range []int{job.MaxOutput + 1, 40 << 20} { // read, and not read
		id := w.result(size)
		if j := s.status(id); j.Status != job.Failed || !strings.HasPrefix(j.Error, job.ErrTextOutputTooLarge) {
			t.Errorf("%d bytes: got %s, %q, want FAILED, %s", size, j.Status, j.Error, job.ErrTextOutputTooLarge)
		}
	}
	id := s.submit() // in chunks, so that its header does not tell its size
	w.take()
	if a := w.send("POST", "/job-done/%w/"+id, io.MultiReader(strings.NewReader(strings.Repeat("x", 40<<20)))); a.status != http.StatusOK {
		t.Errorf("in chunks: got %d, want 200", a.status)
	}
	s.is(id, job.Failed, "", "output_too_large: the worker posted more than 33554432 bytes, which were not read")
	if got := g.service.counts.oversized.Load(); got != 2 {
		t.Errorf("got %d oversized, want 2", got)
	}
	id = w.result(3)
	s.is(id, job.Completed, `"x"`, "")
	bad := &worker{s: s, id: "w1", token: "fw_unknown", gates: w.gates}
	if a := bad.send("POST", "/job-done/%w/x", strings.NewReader(strings.Repeat("x", 40<<20))); a.status != http.StatusUnauthorized {
		t.Errorf("got %d, want 401", a.status)
	}
}

// chunks are those of a job's current run.
func (s *env) chunks(id string) []string {
	s.t.Helper()
	var data []string
	for _, c := range backend.Chunks(s.t, s.queue, s.endpoint, job.ID(id)) {
		data = append(data, string(c.Data))
	}
	return data
}

func TestChunksAreKeptVerbatimInTheirOrder(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}), s.gateway(Config{})) // in turn
	id := s.submit()
	w.take()
	var want []string
	for i := range 9 {
		text := fmt.Sprintf(`{"output":{"i":%d,"text":"data: <ä>\n\n"}}`, i)
		w.emit(id, text)
		want = append(want, text)
	}
	w.emit(id, `{"output": NaN}`)
	want = append(want, `{"output":null}`)
	w.ok("POST", "/job-done/%w/"+id+"?gpu=any&isStream=true", `{"output": []}`)
	if diff := cmp.Diff(want, s.chunks(id)); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	s.is(id, job.Completed, `[]`, "")
}

func TestAChunkThatIsTooLargeFailsTheJob(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	id := s.submit()
	w.take()
	w.emit(id, `{"output": ["`+strings.Repeat("x", job.MaxChunk)+`"]}`)
	if j := s.status(id); j.Status != job.Failed || !strings.HasPrefix(j.Error, job.ErrTextChunkTooLarge) {
		t.Errorf("got %s, %q, want FAILED, %s", j.Status, j.Error, job.ErrTextChunkTooLarge)
	}
	if got := w.toStop(); len(got) != 1 || got[0] != id {
		t.Errorf("to stop: got %v, want %s", got, id)
	}
}

func TestAChunkThatIsNoObjectFailsTheJob(t *testing.T) {
	s := newEnv(t)
	posts := s.gateway(Config{})
	for worker, c := range map[string]struct{ chunk, want string }{
		"w1": {`["x"]`, "it is JSON of another kind"},
		"w2": {`{"output":1}{"output":2}`, "24 bytes, invalid character '{' after top-level value"},
		"w3": {``, "0 bytes, unexpected end of JSON input"},
	} {
		w := s.worker(worker, posts)
		id := s.submit()
		w.take()
		w.emit(id, `{"output":"before"}`)
		w.emit(id, c.chunk)
		s.is(id, job.Failed, "", "chunk_not_stored: the worker posted a chunk that is no JSON object: "+c.want)
		if diff := cmp.Diff([]string{`{"output":"before"}`}, s.chunks(id)); diff != "" {
			t.Errorf("%q: chunks (-want +got):\n%s", c.chunk, diff)
		}
		if got := w.toStop(); len(got) != 1 || got[0] != id {
			t.Errorf("%q: to stop: got %v, want %s", c.chunk, got, id)
		}
	}
}

// Chunks without end would take the space that the ends of all jobs need.
func TestAChunkForWhichThereIsNoSpaceFailsTheJob(t *testing.T) {
	s := newEnv(t)
	var full atomic.Bool
	w := s.worker("w1", s.gateway(Config{HasSpace: func() error {
		if full.Load() {
			return errors.New("the storage is nearly full")
		}
		return nil
	}}))
	id := s.submit()
	w.take()
	w.emit(id, `{"output":"before"}`)
	full.Store(true)
	w.emit(id, `{"output":"after"}`)
	s.is(id, job.Failed, "", "chunk_not_stored: the storage is nearly full")
	if diff := cmp.Diff([]string{`{"output":"before"}`}, s.chunks(id)); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	if got := w.toStop(); len(got) != 1 || got[0] != id {
		t.Errorf("to stop: got %v, want %s", got, id)
	}
	id = s.submit()
	w.take()
	w.done(id, `{"output":1}`)
	s.is(id, job.Completed, "1", "")
}

// The chunk is posted to another instance than those that the worker polls and pings.
func TestAChunkThatIsTooLargeStopsItsHandlerElsewhere(t *testing.T) {
	s := newEnv(t)
	posts, polls := s.gateway(Config{}), s.gateway(Config{Hold: patience})
	w := s.worker("w1", posts)
	other := &worker{s: s, id: "w1", token: w.token, gates: []*instance{polls}}
	for _, size := range []int{2 << 20, 33 << 20} { // that is read, and is not
		id := s.submit()
		w.take()
		stops := make(chan []string, 1)
		go func() { stops <- other.toStop() }()
		testenv.Eventually(t, "the poll waits", func() bool {
			polls.service.stopSignals.mu.Lock()
			defer polls.service.stopSignals.mu.Unlock()
			return len(polls.service.stopSignals.waiting) > 0
		})
		w.emit(id, `{"output":{"x":"`+strings.Repeat("x", size)+`"}}`)
		if j := s.status(id); j.Status != job.Failed || !strings.HasPrefix(j.Error, job.ErrTextChunkTooLarge) {
			t.Errorf("got %s, %q, want FAILED, %s", j.Status, j.Error, job.ErrTextChunkTooLarge)
		}
		if got := <-stops; len(got) != 1 || got[0] != id {
			t.Errorf("to stop after %d bytes: got %v, want %s", size, got, id)
		}
		if got := w.toStop(); len(got) != 1 || got[0] != id {
			t.Errorf("to stop after %d bytes, where they were posted: got %v, want %s", size, got, id)
		}
	}
}

func TestAGatewayThatRestartsLosesNothing(t *testing.T) {
	s := newEnv(t)
	first := s.gateway(Config{})
	w := s.worker("w1", first)
	id := s.submit()
	w.take()
	w.emit(id, `{"output":1}`)
	first.stop()
	w.gates = []*instance{s.gateway(Config{})}
	w.ping(id)
	w.emit(id, `{"output":2}`)
	w.done(id, `{"output":[1,2]}`)
	s.is(id, job.Completed, `[1,2]`, "")
	if diff := cmp.Diff([]string{`{"output":1}`, `{"output":2}`}, s.chunks(id)); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	if j := s.status(id); j.Retries() != 0 || j.Lost != 0 {
		t.Errorf("got %d retries, %d lost, want none", j.Retries(), j.Lost)
	}
}

func TestWhileJetStreamIsAwayAResultIsRefusedAndThenKept(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	id := s.submit()
	w.take()
	w.ping(id)
	s.bus.Stop()
	if a := w.send("POST", "/job-done/%w/"+id+"?gpu=any", strings.NewReader(`{"output":1}`)); a.status < 500 {
		t.Errorf("got %d %s, want a 5xx, which the worker tries again", a.status, a.raw)
	}
	s.bus.Start()
	testenv.Eventually(t, "the result is taken", func() bool {
		return w.send("POST", "/job-done/%w/"+id+"?gpu=any", strings.NewReader(`{"output":1}`)).status == 200
	})
	s.is(id, job.Completed, "1", "")
}
