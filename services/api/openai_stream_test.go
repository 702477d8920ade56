package api

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"flightline/services/api/openai"
	"flightline/shared/queue"
	"flightline/shared/ratelimit"
	"flightline/shared/testenv"
)

// streamed is an answer whose body is still coming.
type streamed struct {
	status int
	header http.Header
	body   io.Reader
}

// openAIStreamOf begins a stream; its head is there when this returns.
func (s *env) openAIStreamOf(do func(*queue.Lease)) *streamed {
	s.t.Helper()
	s.serveNext(do)
	resp, err := http.DefaultClient.Do(s.request("POST", chatPath, strings.NewReader(`{"stream": true}`)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return &streamed{resp.StatusCode, resp.Header, resp.Body}
}

func (s *env) wantOpenAIStream(want string, do func(*queue.Lease)) {
	s.t.Helper()
	resp := s.openAIStreamOf(do)
	got, err := io.ReadAll(resp.body)
	if err != nil || resp.status != http.StatusOK || string(got) != want {
		s.t.Errorf("got %d %.200q, %v, want %.200q", resp.status, got, err, want)
	}
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
		if got := resp.header.Get(name); got != want {
			s.t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if id := resp.header.Get("X-Job-Id"); !strings.HasPrefix(id, "sync-") || resp.header.Get("X-Request-Id") != id {
		s.t.Errorf("got %v, want the job's id in both headers", resp.header)
	}
}

func TestAnOpenAIStreamIsWhatTheWorkerSays(t *testing.T) {
	t.Parallel()
	s := start(t)
	const events = "data: {\"a\":1}\n\ndata: [DONE]\n\n"
	s.wantOpenAIStream(events, s.completes(`["data: {\"a\"", "…"]`, `"data: {\"a\""`, `":1}\n"`, `"\nda"`, `""`, `"ta: [DONE]\n\n"`))
	s.wantOpenAIStream(events, s.completes(`[]`, `{"a":1}`))
	s.wantOpenAIStream(events, s.completes(`{"a":1}`))
	s.wantOpenAIStream(events, s.completes(`["data: {\"a\":1}\n\n", "data: [DONE]\n\n"]`))
	large := strings.Repeat("x", 600<<10)
	s.wantOpenAIStream("data: \""+large+"\"\n\ndata: [DONE]\n\n", s.completes(`["data: \"`+large+`\"\n\n","data: [DONE]\n\n"]`))
	long := strings.Repeat("é", 1<<20) // over the size of a chunk
	s.wantOpenAIStream(long, s.completes(``, `"`+long+`"`))
	for _, nothing := range []string{``, `[]`, `[ ]`} {
		s.serveNext(s.completes(nothing))
		wantOpenAIError(t, s.ask("POST", chatPath, `{"stream":true}`), 502, "server_error", openai.CodeNoOutput)
	}
}

func TestAnErrorInTheMiddleOfAnOpenAIStreamIsAnEvent(t *testing.T) {
	t.Parallel()
	s := start(t)
	const told = `data: {"error":{"message":"bad","type":"x","param":null,"code":400}}` + "\n\n"
	for emitted, first := range map[string]string{
		"data: 1\n\n":        "data: 1\n\n",
		"data: 1\n\ndata: {": "data: 1\n\n", // nobody takes half an event for one
	} {
		goOn := make(chan struct{})
		resp := s.openAIStreamOf(func(lease *queue.Lease) {
			s.emit(lease, strconv.Quote(emitted))
			<-goOn
			s.fails(`{'message': 'bad', 'type': 'x', 'code': 400}`)(lease)
		})
		wantNext(t, resp, first)
		close(goOn)
		if got, err := io.ReadAll(resp.body); err != nil || string(got) != told {
			t.Errorf("after %q: got %q, %v, want %q", emitted, got, err, told)
		}
	}
	s.wantOpenAIStream("data: {\"a\":1}\n\n"+told+"data: [DONE]\n\n", s.completes(``, `{"a":1}`, `{"error":{"message":"bad","type":"x","param":null,"code":400}}`))
}

// wantNext reads this much of a stream.
func wantNext(t *testing.T, resp *streamed, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(resp.body, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got[:n], err, want)
	}
}

// Each text is there before the next one is emitted.
func TestAnOpenAIStreamIsFlushedChunkByChunk(t *testing.T) {
	t.Parallel()
	s := start(t)
	goOn := make(chan struct{})
	resp := s.openAIStreamOf(func(lease *queue.Lease) {
		for range 3 {
			s.emit(lease, `"text"`)
			<-goOn
		}
		s.completes(``)(lease)
	})
	for range 3 {
		wantNext(t, resp, "text")
		goOn <- struct{}{}
	}
	if rest, err := io.ReadAll(resp.body); len(rest) > 0 || err != nil {
		t.Errorf("got %q, %v, want the end", rest, err)
	}
}

// The second run would begin the text again.
func TestAnOpenAIStreamEndsWhenItsWorkerIsLost(t *testing.T) {
	t.Parallel()
	s := start(t)
	id, again := make(chan *queue.Lease, 1), make(chan *queue.Lease, 1)
	resp := s.openAIStreamOf(func(lease *queue.Lease) {
		s.emit(lease, `"data: once\n\n"`)
		id <- lease
	})
	wantNext(t, resp, "data: once\n\n")
	if err := (<-id).Release(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.serveNext(func(lease *queue.Lease) {
		s.emit(lease, `"data: twice\n\n"`)
		again <- lease
	})
	got, err := io.ReadAll(resp.body)
	if err != nil || !strings.HasPrefix(string(got), `data: {"error":{`) || !strings.Contains(string(got), openai.CodeWorkerLost) {
		t.Errorf("got %q, %v, want an error event", got, err)
	}
	second := (<-again).Job.ID
	testenv.Eventually(t, "the second run is cancelled", func() bool {
		j, err := s.queue.Status(t.Context(), s.endpoint, second)
		return err == nil && j.Status == "CANCELLED"
	})
}

// A head that is sent may be followed by comments and by an error.
func TestAnOpenAIStreamThatWaitsSaysSo(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.service.openAI.MaxSilence = 500 * time.Millisecond
	goOn := make(chan struct{})
	resp := s.openAIStreamOf(func(lease *queue.Lease) {
		<-goOn
		s.fails("no memory")(lease)
	})
	wantNext(t, resp, ": ping\n\n")
	close(goOn)
	got, err := io.ReadAll(resp.body)
	if want := `data: {"error":{"message":"no memory","type":"server_error","param":null,"code":"job_failed"}}` + "\n\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// A stream counts as a request at once until its end.
func TestAnOpenAIStreamHoldsItsPlaceToTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t)
	limited := s.limited(ratelimit.Table{ratelimit.OpenAI: {Concurrent: 1}}).env
	goOn := make(chan struct{})
	resp := limited.openAIStreamOf(func(lease *queue.Lease) {
		s.emit(lease, `"text"`)
		<-goOn
		s.completes(``)(lease)
	})
	wantOpenAIError(t, limited.ask("GET", "/ep/openai/v1/models", ``), 429, "rate_limit_error", "too_many_requests")
	close(goOn)
	if _, err := io.ReadAll(resp.body); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the next one may", func() bool { return limited.ask("POST", chatPath, `x`).status == http.StatusBadRequest })
}

// What others do while it waits does not end it early.
func TestAnOpenAIStreamSitsOutAnOutage(t *testing.T) {
	t.Parallel()
	s := start(t)
	completed := make(chan struct{})
	resp := s.openAIStreamOf(func(lease *queue.Lease) {
		defer close(completed)
		s.emit(lease, `"data: 1\n\n"`)
		s.bus.Stop()
		s.bus.Start()
		testenv.Eventually(s.t, "the worker can go on", func() bool {
			ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
			defer cancel()
			_, err := lease.Complete(ctx, nil)
			return err == nil
		})
	})
	if got, err := io.ReadAll(resp.body); err != nil || string(got) != "data: 1\n\n" {
		t.Errorf("got %q, %v", got, err)
	}
	<-completed // the stream may end before the worker has the answer that its outcome is stored
}
