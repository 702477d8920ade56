package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"flightline/services/api/openai"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/ratelimit"
	"flightline/shared/registry"
)

const chatPath = "/ep/openai/v1/chat/completions"

// serveNext lets a worker do the next job, while the test asks for it.
func (s *env) serveNext(do func(*queue.Lease)) {
	s.t.Helper()
	done := make(chan struct{})
	s.t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		do(s.take())
	}()
}

// completes is a worker that emits these outputs and completes with one, "" for none.
func (s *env) completes(output string, emits ...string) func(*queue.Lease) {
	return func(lease *queue.Lease) {
		s.emit(lease, emits...)
		if _, err := lease.Complete(context.WithoutCancel(s.t.Context()), json.RawMessage(output)); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *env) fails(text string, output ...string) func(*queue.Lease) {
	return func(lease *queue.Lease) {
		if _, err := lease.FailWith(context.WithoutCancel(s.t.Context()), text, json.RawMessage(strings.Join(output, ""))); err != nil {
			s.t.Error(err)
		}
	}
}

// answered has a worker answer the scene's request; the scene's own job is in
// its way.
func answered(output string) func(*env, string) {
	return func(s *env, id string) {
		s.do("POST", "/ep/cancel/"+id, "")
		s.serveNext(s.completes(output))
	}
}

// ask sends a request of any form of answer.
func (s *env) ask(method, path, body string) answer {
	s.t.Helper()
	return s.sendLoosely(s.request(method, path, strings.NewReader(body)))
}

func TestARequestOfOpenAIsBecomesAJobVerbatim(t *testing.T) {
	t.Parallel()
	s := start(t)
	const body = "{ \"model\": \"m\",\n \"n\": 1.0, \"text\": \"<a & b> \u2028 é\" , \"stream\" : null }"
	for _, tc := range []struct{ method, path, body, want string }{
		{"POST", "/ep/openai/v1/chat/completions", "\r\n" + body + " ", `{"openai_route":"/v1/chat/completions","openai_input":` + body + `}`},
		{"POST", "/ep/openai/v1/responses", "{}", `{"openai_route":"/v1/responses","openai_input":{}}`},
		{"GET", "/ep/openai/v1/models", "", `{"openai_route":"/v1/models","openai_input":{}}`},
		{"GET", "/ep/openai/v1/models/a%2Fb?x=y", "ignored", `{"openai_route":"/v1/models/a%2Fb","openai_input":{}}`},
	} {
		var lease *queue.Lease
		s.serveNext(func(l *queue.Lease) { lease = l; s.completes(`[{"object":"list"}]`)(l) })
		a := s.ask(tc.method, tc.path, tc.body)
		if a.status != 200 || a.raw != `{"object":"list"}` || a.header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: got %d %s", tc.path, a.status, a.raw)
		}
		if got := string(lease.Input); got != tc.want {
			t.Errorf("got input %s, want %s", got, tc.want)
		}
		id := string(lease.Job.ID)
		if !strings.HasPrefix(id, "sync-") || a.header.Get("X-Job-Id") != id || a.header.Get("X-Request-Id") != id {
			t.Errorf("got job %s and headers %v, want its id in both", id, a.header)
		}
	}
}

func TestAnAnswerIsTheOutputOrWhatWasEmitted(t *testing.T) {
	t.Parallel()
	s := start(t)
	large := `{"x":"` + strings.Repeat("x", 600<<10) + `"}`
	for name, tc := range map[string]struct {
		output string
		emits  []string
		want   string
	}{
		"aggregated":           {`[{"a":1}]`, []string{`{"a":1}`}, `{"a":1}`},
		"a plain handler's":    {`{"a":1}`, nil, `{"a":1}`},
		"not aggregated":       {`[]`, []string{`{"a":1}`}, `{"a":1}`},
		"emitted by Go":        {``, []string{`"{\"a\""`, `":1}"`}, `{"a":1}`},
		"emitted and returned": {`{"a":2}`, []string{`"x"`}, `{"a":2}`},
		"large":                {`[` + large + `]`, nil, large},
		"large and emitted":    {``, []string{large, large, large}, `[` + large + `,` + large + `,` + large + `]`},
	} {
		s.serveNext(s.completes(tc.output, tc.emits...))
		if a := s.ask("POST", chatPath, `{}`); a.status != 200 || a.raw != tc.want {
			t.Errorf("%s: got %d %.100s, want %.100s", name, a.status, a.raw, tc.want)
		}
	}
	s.serveNext(s.completes(`null`))
	if a := s.ask("POST", chatPath, `{}`); a.status != 502 || !strings.Contains(a.raw, `"no_output"`) {
		t.Errorf("nothing: got %d %s, want 502", a.status, a.raw)
	}
}

// wantOpenAIError is an answer in OpenAI's shape.
func wantOpenAIError(t *testing.T, a answer, status int, kind, code string) {
	t.Helper()
	var body struct {
		Error struct {
			Message string `json:"message"`
			Type    string `json:"type"`
			Code    any    `json:"code"`
		} `json:"error"`
	}
	err := json.Unmarshal([]byte(a.raw), &body)
	if err != nil || a.status != status || body.Error.Message == "" || body.Error.Type != kind || fmt.Sprint(body.Error.Code) != code {
		t.Errorf("got %d %s, want %d %s %s", a.status, a.raw, status, kind, code)
	}
	if a.header.Get("Content-Type") != "application/json" || a.header.Get("X-Request-Id") == "" {
		t.Errorf("got %v, want JSON and a request id", a.header)
	}
}

func TestAJobThatFailsIsAnErrorWithItsStatus(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, body := range []string{`{}`, `{"stream":true}`} {
		s.serveNext(s.fails(`{'message': 'too long', 'type': 'BadRequestError', 'code': 400}`))
		wantOpenAIError(t, s.ask("POST", chatPath, body), 400, "BadRequestError", "400")
		s.serveNext(s.completes(`[{"object":"error","message":"no model","type":"NotFoundError","code":404}]`))
		wantOpenAIError(t, s.ask("POST", chatPath, body), 404, "NotFoundError", "404")
		s.serveNext(s.completes(``, `{"error":{"message":"no","type":"x","code":429}}`))
		wantOpenAIError(t, s.ask("POST", chatPath, body), 429, "x", "429")
		s.serveNext(s.fails("out of memory"))
		wantOpenAIError(t, s.ask("POST", chatPath, body), 500, "server_error", openai.CodeFailed)
		s.serveNext(s.fails("out of memory", `{"details":["CUDA"]}`))
		beside := s.ask("POST", chatPath, body)
		wantOpenAIError(t, beside, 500, "server_error", openai.CodeFailed)
		if !strings.Contains(beside.raw, `"output":{"details":["CUDA"]}`) {
			t.Errorf("got %s, want the output beside the error", beside.raw)
		}
		s.serveNext(func(lease *queue.Lease) {
			if _, err := s.queue.Cancel(context.WithoutCancel(t.Context()), s.endpoint, lease.Job.ID); err != nil {
				t.Error(err)
			}
		})
		wantOpenAIError(t, s.ask("POST", chatPath, body), 499, "invalid_request_error", openai.CodeCancelled)
		s.serveNext(func(lease *queue.Lease) {
			if _, err := s.queue.SetTTL(context.WithoutCancel(t.Context()), s.endpoint, lease.Job.ID, time.Millisecond); err != nil && !errors.Is(err, job.ErrNotFound) {
				t.Error(err)
			}
		})
		wantOpenAIError(t, s.ask("POST", chatPath, body), 504, "server_error", openai.CodeExpired)
		s.serveNext(func(lease *queue.Lease) {
			if _, err := lease.TimeOut(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		wantOpenAIError(t, s.ask("POST", chatPath, body), 504, "server_error", openai.CodeTimedOut)
	}
}

func TestWhatIsRefusedHasOpenAIsShape(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, body := range []string{``, `null`, `[]`, `"x"`, `{`, `{} {}`, "--x\r\nContent-Disposition: form-data\r\n"} {
		wantOpenAIError(t, s.ask("POST", chatPath, body), 400, "invalid_request_error", "invalid_request")
	}
	wantOpenAIError(t, s.ask("POST", chatPath, "{\"user\":\"Caf\xe9\"}"), 400, "invalid_request_error", "invalid_request")
	wantOpenAIError(t, s.ask("POST", "/nobody/openai/v1/embeddings", `{}`), 404, "invalid_request_error", "endpoint_not_found")
	wantOpenAIError(t, s.ask("POST", "/ep/openai/", `{}`), 404, "invalid_request_error", "route_not_found")
	wantOpenAIError(t, s.ask("DELETE", "/ep/openai/v1/responses/x", ``), 405, "invalid_request_error", "method_not_allowed")
	wantOpenAIError(t, s.ask("POST", chatPath, strings.Repeat(" ", 20<<20+1)), 413, "invalid_request_error", "body_too_large")
	wantOpenAIError(t, s.ask("POST", chatPath, strings.Repeat(" ", 21<<20)), 413, "invalid_request_error", "body_too_large")
	reader, _, err := s.registry.Keys.Create(t.Context(), registry.KeySpec{Name: "reader", Scopes: []registry.Scope{{Permission: registry.Read, Endpoint: "ep"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"", "Bearer nobody", "Bearer " + reader} {
		req := s.request("POST", chatPath, strings.NewReader(`{}`))
		req.Header.Set("Authorization", key)
		wantOpenAIError(t, s.sendLoosely(req), 401, "authentication_error", "unauthorized")
	}
	limited := s.limited(ratelimit.Table{ratelimit.OpenAI: {Requests: 1}}).env
	wantOpenAIError(t, limited.ask("POST", chatPath, `x`), 400, "invalid_request_error", "invalid_request")
	a := limited.ask("GET", "/ep/openai/v1/models", ``)
	wantOpenAIError(t, a, 429, "rate_limit_error", "too_many_requests")
	if a.header.Get("Retry-After") == "" {
		t.Errorf("got %v, want Retry-After", a.header)
	}
	s.bus.Stop()
	a = s.ask("POST", chatPath, `{"stream":true}`)
	wantOpenAIError(t, a, 503, "server_error", "unavailable")
	if a.header.Get("Retry-After") == "" || !strings.HasPrefix(a.header.Get("X-Request-Id"), "sync-") {
		t.Errorf("got %v, want Retry-After and the job's id", a.header)
	}
	s.bus.Start() // so that it is soon known that there is no job to cancel
}
