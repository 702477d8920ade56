package clients

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// engine is a program that serves OpenAI's API.
type engine struct {
	name    string
	model   string
	more    string // what a request has besides, to be answered the same each time
	short   string // a request for a few words
	long    string // and for an answer that takes minutes, where slow is set
	command func(t *testing.T, port string, slow bool) []string
}

// engines are a published stand-in, which answers at once and repeats what it is asked,
// and llama.cpp with a small model.
var engines = []engine{
	{
		name:  "llmock",
		model: "gpt-4o",
		more:  `{}`,
		short: `"messages":[{"role":"user","content":"a"}]`,
		long:  `"messages":[{"role":"user","content":"` + strings.Repeat("slow ", 200) + `"}]`,
		command: func(t *testing.T, port string, slow bool) []string {
			t.Helper()
			binary := filepath.Join(needs(t, python, "model", "requirements.txt", "constraints.txt"), "bin", "llmock")
			args := []string{binary, "serve", "--host", "127.0.0.1", "--port", port, "--response-style", "echo", "--context-window", "4000"}
			if slow {
				args = append(args, "--stream-chunk-delay-ms", "2000")
			}
			return args
		},
	},
	{
		name:  "llama.cpp",
		model: "smollm2",
		more:  `{"temperature":0,"max_tokens":12,"extra_body":{"cache_prompt":false}}`,
		short: `"max_tokens":3,"messages":[{"role":"user","content":"Say hello."}]`,
		long:  `"ignore_eos":true,"messages":[{"role":"user","content":"Count."}]`,
		command: func(t *testing.T, port string, _ bool) []string {
			t.Helper()
			binary := filepath.Join(needs(t, python, "llama", "requirements.txt", "constraints.txt"), "bin", "python")
			return []string{binary, absolute(t, "python/llama_server.py"), port}
		},
	},
}

// modelServer is an engine, and an endpoint whose worker passes jobs on to it.
type modelServer struct {
	*testing.T
	engine
	s        *env
	address  string
	args     []string // that start the engine
	server   *daemon
	endpoint string
}

// modelOf has neither started yet.
func modelOf(t *testing.T, e engine, slow bool) *modelServer {
	t.Helper()
	m := &modelServer{T: t, engine: e, address: testenv.FreePorts(t, 1)[0]}
	m.args = e.command(t, m.address[strings.LastIndexByte(m.address, ':')+1:], slow)
	m.s = sharedSite(t)
	return m
}

// newModel starts the engine, and a worker before it with room for so many jobs.
func newModel(t *testing.T, e engine, concurrency int, slow bool) *modelServer {
	t.Helper()
	m := modelOf(t, e, slow)
	m.start()
	m.endpoint = m.s.endpoint(t, client.EndpointSpec{})
	worker, err := m.s.start(context.WithoutCancel(t.Context()), "worker", m.endpoint, "--openai-upstream", "http://"+m.address, "--concurrency", fmt.Sprint(concurrency), "--grace", "1s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := worker.stop(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// start starts the server, and waits until it answers. The end of the test kills it.
func (m *modelServer) start() {
	m.Helper()
	cmd := command(m.T, m.TempDir(), nil, m.args[0], m.args[1:]...)
	cmd.Cancel = func() error { return nil } // the cleanup below does it
	var err error
	if m.server, err = startDaemon(cmd); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(m.server.kill)
	testenv.Eventually(m.T, "the model server answers", m.answers)
}

// answers reports whether the server runs.
func (m *modelServer) answers() bool {
	answer, err := http.Get("http://" + m.address + "/health")
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}

// chat begins a streamed answer to this request, and returns after its first event.
func (m *modelServer) chat(ctx context.Context, request string) (id job.ID, rest *bufio.Reader) {
	m.Helper()
	body := strings.NewReader(`{"model":"` + m.model + `","stream":true,` + request + `}`)
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, m.s.URL+"/v2/"+m.endpoint+"/openai/v1/chat/completions", body)
	if err != nil {
		m.Fatal(err)
	}
	post.Header.Set("Authorization", "Bearer "+m.s.APIKey)
	answer, err := http.DefaultClient.Do(post)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = answer.Body.Close() })
	rest = bufio.NewReader(answer.Body)
	line, err := rest.ReadString('\n')
	for err == nil && (line == "\n" || strings.HasPrefix(line, ":")) { // the server starts, or is slow: pings
		line, err = rest.ReadString('\n')
	}
	if err != nil || !strings.HasPrefix(line, "data: {") {
		m.Fatalf("got %s %q, %v, want the first event", answer.Status, line, err)
	}
	return job.ID(answer.Header.Get("X-Job-Id")), rest
}

// becomes waits for a status of the job.
func (m *modelServer) becomes(id job.ID, want job.Status) (got *client.Job) {
	m.Helper()
	testenv.Eventually(m.T, fmt.Sprintf("job %s is %s", id, want), func() bool {
		var err error
		got, err = m.s.api.Status(m.Context(), m.endpoint, id)
		return err == nil && got.Status == want
	})
	return got
}

// ends reads a stream to its end, which is whole.
func (m *modelServer) ends(rest *bufio.Reader) {
	m.Helper()
	if text, err := io.ReadAll(rest); err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		m.Errorf("got %q, %v, want the whole answer", text, err)
	}
}

// OpenAI's client sees the same, whether it speaks to the engine or to the endpoint.
func TestAModelServerBehindAnEndpointAnswersAsItWouldItself(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, e, 8, false)
			see := func(base, key string) string {
				return transcript(t, pythonScript(t, python, "python/model_client.py", "BASE_URL="+base, "API_KEY="+key, "MODEL="+m.model, "MORE="+m.more))
			}
			want := see("http://"+m.address+"/v1", "any")
			if got := see(m.s.URL+"/v2/"+m.endpoint+"/openai/v1", m.s.APIKey); got != want {
				t.Errorf("got other lines than of the engine itself:\n%s", difference(got, want))
			}
		})
	}
}

// The answer would take minutes, and there is room for one.
func TestAClientThatLeavesAModelServerMakesRoom(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, e, 1, true)
			ctx, leave := context.WithCancel(t.Context())
			id, _ := m.chat(ctx, m.long)
			leave()
			m.becomes(id, job.Cancelled)
			_, rest := m.chat(t.Context(), m.short)
			m.ends(rest)
		})
	}
}

// A stream that breaks ends with an error; later jobs wait for the engine.
func TestAModelServerThatIsKilledComesBack(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, e, 2, true)
			id, rest := m.chat(t.Context(), m.long)
			m.server.kill()
			text, err := io.ReadAll(rest)
			if err != nil || !strings.Contains(string(text), `"the model server's answer broke off`) || strings.Contains(string(text), "[DONE]") {
				t.Errorf("got %q, %v, want an error as the last event", text, err)
			}
			m.becomes(id, job.Failed)

			later, err := m.s.api.Run(t.Context(), m.endpoint, client.Request{Input: input{"openai_route": "/v1/models"}})
			if err != nil {
				t.Fatal(err)
			}
			m.start()
			if got := m.becomes(later.ID, job.Completed); !strings.Contains(string(got.Output), `"`+m.model+`"`) {
				t.Errorf("got %s, want the list of models", got.Output)
			}
		})
	}
}

// The tutorial's last line: the autoscaler starts the worker, which starts the engine.
func TestAModelServerIsStartedForARequestAndStoppedAfterIt(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			m := modelOf(t, e, false)
			m.endpoint = "from-zero-" + strings.ReplaceAll(e.name, ".", "-")
			create := command(t, m.s.dir, nil, m.s.binary, append([]string{
				"endpoint", "create", m.endpoint, "--driver", "process", "--workers-max", "1", "--idle-timeout", "1s", "--",
				m.s.binary, "worker", m.endpoint, "--openai-upstream", "http://" + m.address, "--",
			}, m.args...)...)
			if out, err := create.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			_, rest := m.chat(t.Context(), m.short)
			m.ends(rest)
			testenv.Eventually(t, "the engine is stopped", func() bool { return !m.answers() })
		})
	}
}
