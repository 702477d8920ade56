package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"flightline/shared/job"
)

// The forms of RunPod's worker-vllm without a route.
func TestAJobWithAPromptIsACompletion(t *testing.T) {
	s := newEnv(t)
	s.pass(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path == pathModels:
			_, _ = io.WriteString(w, `{"data":[{"id":"first"}]}`)
		case strings.Contains(string(body), `"stream":true`):
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n")
		default:
			text, _ := json.Marshal(r.URL.Path + string(body))
			_, _ = fmt.Fprintf(w, `{"choices":[{"text":%s}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, text)
		}
	})
	send := func(input string) job.ID {
		return s.submit(t, func(r *job.Request) { r.Input = json.RawMessage(input) })
	}
	want := `[{"choices":[{"tokens":["/v1/completions{\"max_tokens\":3,\"model\":\"first\",\"prompt\":\"p\",\"seed\":9007199254740993,\"stream\":false}"]}],"usage":{"input":1,"output":2}}]`
	if j := s.ended(t, send(`{"prompt":"p","sampling_params":{"max_tokens":3,"seed":9007199254740993}}`)); string(j.Output) != want {
		t.Errorf("got %s %s, want %s", j.Output, j.Error, want)
	}
	id := send(`{"messages":[],"model":"m","stream":true}`)
	if j := s.ended(t, id); j.Status != job.Completed {
		t.Errorf("got %s %s", j.Status, j.Error)
	}
	if got := strings.Join(s.chunks(t, id), " "); got != `{"choices":[{"tokens":["a"]}]} {"choices":[],"usage":{"input":1,"output":2}}` {
		t.Errorf("got chunks %s", got)
	}
}

func TestWhatIsNoErrorOfACompletion(t *testing.T) {
	for _, member := range []string{`null`, `false`, `""`, `{}`} {
		if b, ok, err := batchOf([]byte(`{"choices":[{"text":"a"}],"error":` + member + `}`)); err != nil || !ok || len(b.Choices) != 1 {
			t.Errorf("%s: got %+v, %v, %v", member, b, ok, err)
		}
	}
	if _, ok, err := batchOf([]byte(`{"object":"error","message":"no"}`)); ok || err == nil {
		t.Errorf("got %v, %v, want an error", ok, err)
	}
}

// vLLM answers 200, and says in the stream, or in place of the completion, what went wrong.
func TestAnErrorInPlaceOfACompletionFailsTheJob(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"in the stream":  answers(200, "text/event-stream", "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{\"message\":\"out of memory\"}}\n\ndata: [DONE]\n\n"),
		"alone":          answers(200, "application/json", `{"error":{"message":"out of memory"}}`),
		"without an end": answers(200, "text/event-stream", `data: {"error":{"message":"out of memory"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			s.pass(t, handler)
			j := s.ended(t, s.submit(t, func(r *job.Request) { r.Input = json.RawMessage(`{"messages":[],"model":"m","stream":true}`) }))
			if want := `{"message":"the model server failed: {\"message\":\"out of memory\"}","type":"server_error","code":502}`; j.Status != job.Failed || j.Error != want {
				t.Errorf("got %s %q, want FAILED %q", j.Status, j.Error, want)
			}
		})
	}
}

// A line without an end is not kept without a bound.
func TestALineOfAStreamHasABound(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.pass(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		part := strings.Repeat("x", 1<<20)
		for range 2 * job.MaxOutput / len(part) {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
	})
	j := s.ended(t, s.submit(t, func(r *job.Request) { r.Input = json.RawMessage(`{"messages":[],"model":"m","stream":true}`) }))
	if want := job.ErrTextOutputTooLarge + ": a line of the model server's answer is longer than 20 MB"; j.Status != job.Failed || j.Error != want {
		t.Errorf("got %s %q, want FAILED %q", j.Status, j.Error, want)
	}
}
