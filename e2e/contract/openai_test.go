package contract

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"flightline/shared/worker"
)

// openAITask is what a request asks of the handler of these scenarios, and what
// that returns.
type openAITask struct {
	Emit   []json.RawMessage `json:"emit"`
	Hold   bool              `json:"hold"` // until the job is cancelled
	Fail   string            `json:"fail"`
	Answer json.RawMessage   `json:"answer"`
}

// engine is an endpoint whose workers speak as OpenAI servers would. stopped
// counts the jobs that were taken away from them.
func engine(s *run, settings string) (p *testEndpoint, stopped <-chan struct{}) {
	p = s.endpoint(settings)
	cancelled := make(chan struct{}, 8)
	s.Cleanup(p.handleUntil(2, func(ctx context.Context, j *worker.Job) (any, error) {
		var input map[string]json.RawMessage
		var do openAITask
		if err := json.Unmarshal(j.Input, &input); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(input["openai_input"], &do); err != nil {
			return nil, err
		}
		if string(input["openai_route"]) == `"/v1/models"` {
			return map[string]any{"object": "list", "data": []any{map[string]string{"id": "m", "object": "model"}}}, nil
		}
		for _, chunk := range do.Emit {
			if err := j.Emit(ctx, chunk); err != nil {
				return nil, err
			}
		}
		if do.Hold {
			<-ctx.Done()
			cancelled <- struct{}{}
			return nil, context.Cause(ctx)
		}
		if do.Fail != "" {
			return nil, errors.New(do.Fail)
		}
		return do.Answer, nil
	}))
	return p, cancelled
}

const (
	chats      = "/openai/v1/chat/completions"
	halfEvents = `"emit":["data: {\"n\"",":1}\n\nda","ta: [DONE]\n\n"]`
	events2    = "data: {\"n\":1}\n\ndata: [DONE]\n\n"
)

// openAIRows are the operations beneath openai (docs/design/runpod-clients.md#openai-route).
func openAIRows() map[string]scenario {
	return map[string]scenario{
		"models": func(s *run) {
			p, _ := engine(s, "")
			p.want(p.do("GET", "/openai/v1/models", ""), http.StatusOK, "object", "list", "data", "m")
		},
		"an answer, its job's id in headers": func(s *run) {
			p, _ := engine(s, "")
			a := p.do("POST", chats, `{"model":"m","answer":[{"object":"chat.completion"}]}`)
			p.want(a, http.StatusOK, "object", "chat.completion")
			id := a.header.Get("X-Job-Id")
			p.want(p.status(id), http.StatusOK, "status", "COMPLETED", "id", a.header.Get("X-Request-Id"))
		},
		"an answer that was emitted": func(s *run) {
			p, _ := engine(s, "")
			p.want(p.do("POST", "/openai/v1/embeddings", `{"emit":["{\"object\":","\"list\"}"]}`), http.StatusOK, "object", "list")
		},
		"text": func(s *run) {
			p, _ := engine(s, "")
			if a := p.do("POST", chats, `{"emit":["Hel","lo"]}`); a.status != http.StatusOK || a.raw != "Hello" {
				s.Errorf("got %d %q", a.status, a.raw)
			}
		},
		"a stream": func(s *run) {
			p, _ := engine(s, "")
			a := p.do("POST", chats, `{"stream":true,`+halfEvents+`}`)
			if kind := a.header.Get("Content-Type"); a.raw != events2 || kind != "text/event-stream" {
				s.Errorf("got %d %s %q, want the worker's words", a.status, kind, a.raw)
			}
		},
		"a stream of objects": func(s *run) {
			p, _ := engine(s, "")
			if a := p.do("POST", chats, `{"stream":true,"emit":[{"n":1}]}`); a.raw != events2 {
				s.Errorf("got %d %q, want %q", a.status, a.raw, events2)
			}
		},
		"the worker's error": func(s *run) {
			p, _ := engine(s, "")
			for _, how := range []string{`{"fail":"{'message': 'too long', 'type': 'BadRequestError', 'code': 400}"}`, `{"stream":true,"fail":"vLLM returned HTTP 400: {\"error\":{\"message\":\"too long\"}}"}`} {
				p.want(p.do("POST", chats, how), http.StatusBadRequest, "error", "too long")
			}
			p.want(p.do("POST", chats, `{"answer":{"object":"error","message":"no m","code":404}}`), http.StatusNotFound, "error", "no m")
			p.want(p.do("POST", chats, `{"fail":"boom"}`), http.StatusInternalServerError, "error", "boom")
		},
		"a client that leaves": func(s *run) {
			p, stopped := engine(s, "")
			for _, more := range []string{`"stream":false`, `"stream":true`, `"stream":true,"emit":["data: {}\n\n"]`} {
				ctx, leave := context.WithTimeout(s.Context(), 2*second)
				resp, _, err := p.open(ctx, call{method: "POST", path: p.path(chats), body: `{"hold":true,` + more + `}`, turn: &p.turn})
				if err == nil {
					_, err = bufio.NewReader(resp.Body).ReadString('}')
					_ = resp.Body.Close()
				}
				leave()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, io.EOF) {
					s.Error(err)
				}
				<-stopped
			}
		},
		"a job that somebody cancels": func(s *run) {
			p := s.endpoint("")
			done := make(chan answer, 1)
			go func() {
				a, err := p.try(s.Context(), call{method: "POST", path: p.path(chats), body: `{}`})
				if err != nil {
					s.Error(err)
				}
				done <- a
			}()
			p.eventually("it waits", func() bool {
				return strings.Contains(p.do("GET", "/health", "").raw, `"inQueue":1`)
			})
			p.want(p.do("POST", "/purge-queue", ""), http.StatusOK)
			p.want(<-done, 499, "error", "job_cancelled")
		},
		"what is refused": func(s *run) {
			p, _ := engine(s, `"limits":{"openai":{"requests":2,"concurrent":0}}`)
			p.want(p.wrong("POST", chats, `[]`), http.StatusBadRequest, "error", "invalid_request_error")
			for _, key := range []string{"", "nobody"} {
				a := p.send(call{method: "POST", path: p.path(chats), body: `{}`, header: map[string]string{"Authorization": key}})
				p.want(a, http.StatusUnauthorized, "error", "authentication_error")
			}
			p.want(p.send(call{method: "POST", path: "/v2/nobody" + chats, body: `{}`}), http.StatusNotFound, "error", "endpoint_not_found")
			p.eventually("too many are refused", func() bool {
				a := p.do("GET", "/openai/v1/models", "")
				return a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") != "" && strings.Contains(a.raw, "rate_limit_error")
			})
		},
		"20 MB, and more": func(s *run) {
			heavy <- struct{}{}
			defer func() { <-heavy }()
			p, _ := engine(s, "")
			const head, tail = `{"answer":{"ok":1},"x":"`, `"}`
			whole := head + strings.Repeat("x", 20<<20-len(head)-len(tail)) + tail
			p.want(p.do("POST", chats, whole), http.StatusOK, "ok", "1")
			p.want(p.do("POST", chats, whole+" "), http.StatusRequestEntityTooLarge, "error", "body_too_large")
		},
	}
}
