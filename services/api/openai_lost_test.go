package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/services/api/openai"
	"flightline/shared/queue"
	"flightline/shared/testenv"
)

// lostAfter begins a stream whose first worker emits a chunk, of which shown
// reaches the client, and is lost; then does what the next one does.
func (s *env) lostAfter(chunk, shown string, then func(*queue.Lease)) *streamed {
	s.t.Helper()
	first := make(chan *queue.Lease, 1)
	resp := s.openAIStreamOf(func(lease *queue.Lease) {
		s.emit(lease, chunk)
		first <- lease
	})
	wantNext(s.t, resp, shown)
	if err := (<-first).Release(context.WithoutCancel(s.t.Context())); err != nil {
		s.t.Fatal(err)
	}
	s.serveNext(then)
	return resp
}

const ping = ": ping\n\n"

// Nothing of the first worker was written, so that the second one's text is all
// there is.
func TestHalfAnEventOfALostWorkerIsForgotten(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.service.openAI.MaxSilence = 300 * time.Millisecond
	for name, tc := range map[string]struct {
		then func(*queue.Lease)
		want string
	}{
		"streamed":            {s.completes(``, `"data: {\"id\":2}\n\n"`), "data: {\"id\":2}\n\n"},
		"streamed as objects": {s.completes(``, `{"id":2}`), "data: {\"id\":2}\n\ndata: [DONE]\n\n"},
		"whole":               {s.completes(`{"id":2}`), "data: {\"id\":2}\n\ndata: [DONE]\n\n"},
	} {
		resp := s.lostAfter(`"data: {\"id\""`, ping+ping, tc.then) // the second ping comes after the half was read
		got, err := io.ReadAll(resp.body)
		if got := strings.ReplaceAll(string(got), ping, ""); err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
	}
	s.serveNext(func(lease *queue.Lease) {
		s.emit(lease, `"data: {\"id\""`)
		if err := lease.Release(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		s.fails("no memory")(s.take())
	})
	s.service.openAI.MaxSilence = patience
	wantOpenAIError(t, s.ask("POST", chatPath, `{"stream":true}`), http.StatusInternalServerError, "server_error", openai.CodeFailed)
}

// The second run need not say anything for the first one's text to be worthless.
func TestAnOpenAIStreamEndsWhenAnotherRunSaysNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.service.openAI.MaxSilence = patience
	const once = "data: once\n\n"
	wantEnd := func(name string, resp *streamed, code string) {
		t.Helper()
		got, err := io.ReadAll(resp.body)
		if got := strings.ReplaceAll(string(got), ping, ""); err != nil || !strings.HasPrefix(got, `data: {"error":{`) || !strings.Contains(got, code) {
			t.Errorf("%s: got %q, %v, want an error event with %s", name, got, err, code)
		}
	}
	wantEnd("whole", s.lostAfter(`"data: once\n\n"`, once, s.completes(`{"id":2}`)), openai.CodeWorkerLost)
	wantEnd("failed", s.lostAfter(`"data: once\n\n"`, once, s.fails("no memory")), openai.CodeFailed)
	s.service.openAI.MaxSilence = 300 * time.Millisecond
	second := make(chan *queue.Lease, 1)
	wantEnd("silent", s.lostAfter(`"data: once\n\n"`, once, func(lease *queue.Lease) { second <- lease }), openai.CodeWorkerLost)
	id := (<-second).Job.ID
	testenv.Eventually(t, "the second run is cancelled", func() bool {
		j, err := s.queue.Status(t.Context(), s.endpoint, id)
		return err == nil && j.Status == "CANCELLED"
	})
}
