package clients

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// modelServer is a published server of OpenAI's API, in place of a model's, and an
// endpoint whose worker passes jobs on to it.
type modelServer struct {
	*testing.T
	s        *env
	address  string
	command  []string // that starts the server
	server   *daemon
	endpoint string
}

// modelOf has neither started yet.
func modelOf(t *testing.T, args ...string) *modelServer {
	t.Helper()
	binary := filepath.Join(needs(t, python, "model", "requirements.txt", "constraints.txt"), "bin", "llmock")
	m := &modelServer{T: t, s: sharedSite(t), address: testenv.FreePorts(t, 1)[0]}
	port := m.address[strings.LastIndexByte(m.address, ':')+1:]
	m.command = append([]string{binary, "serve", "--host", "127.0.0.1", "--port", port, "--response-style", "echo"}, args...)
	return m
}

// newModel starts the server with these settings, and a worker before it with room for
// so many jobs.
func newModel(t *testing.T, concurrency int, args ...string) *modelServer {
	t.Helper()
	m := modelOf(t, args...)
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
	cmd := command(m.T, m.TempDir(), nil, m.command[0], m.command[1:]...)
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

// chat begins a streamed answer, which repeats the text, and returns after its first
// event.
func (m *modelServer) chat(ctx context.Context, text string) (id job.ID, rest *bufio.Reader) {
	m.Helper()
	body := strings.NewReader(`{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"` + text + `"}]}`)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.s.URL+"/v2/"+m.endpoint+"/openai/v1/chat/completions", body)
	if err != nil {
		m.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+m.s.APIKey)
	answer, err := http.DefaultClient.Do(request)
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

// OpenAI's client sees the same, whether it speaks to the server or to the endpoint.
func TestAModelServerBehindAnEndpointAnswersAsItWouldItself(t *testing.T) {
	t.Parallel()
	m := newModel(t, 8, "--context-window", "4000")
	see := func(base, key string) string {
		return transcript(t, pythonScript(t, python, "python/model_client.py", "BASE_URL="+base, "API_KEY="+key))
	}
	want := see("http://"+m.address+"/v1", "any")
	if got := see(m.s.URL+"/v2/"+m.endpoint+"/openai/v1", m.s.APIKey); got != want {
		t.Errorf("got other lines than of the server itself:\n%s", difference(got, want))
	}
}

// The answer would take minutes, and there is room for one.
func TestAClientThatLeavesAModelServerMakesRoom(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1, "--stream-chunk-delay-ms", "2000")
	ctx, leave := context.WithCancel(t.Context())
	id, _ := m.chat(ctx, strings.Repeat("slow ", 200))
	leave()
	m.becomes(id, job.Cancelled)
	_, rest := m.chat(t.Context(), "a")
	if text, err := io.ReadAll(rest); err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("got %q, %v, want the whole answer", text, err)
	}
}

// A stream that breaks ends with an error; later jobs wait for the server.
func TestAModelServerThatIsKilledComesBack(t *testing.T) {
	t.Parallel()
	m := newModel(t, 2, "--stream-chunk-delay-ms", "1000")
	id, rest := m.chat(t.Context(), strings.Repeat("slow ", 200))
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
	if got := m.becomes(later.ID, job.Completed); !strings.Contains(string(got.Output), `"gpt-4o"`) {
		t.Errorf("got %s, want the list of models", got.Output)
	}
}

// The tutorial's last line: the autoscaler starts the worker, which starts the server.
func TestAModelServerIsStartedForARequestAndStoppedAfterIt(t *testing.T) {
	t.Parallel()
	m := modelOf(t)
	m.endpoint = "from-zero"
	create := exec.CommandContext(t.Context(), m.s.binary, append([]string{
		"endpoint", "create", m.endpoint, "--driver", "process", "--workers-max", "1", "--idle-timeout", "1s", "--",
		m.s.binary, "worker", m.endpoint, "--openai-upstream", "http://" + m.address, "--",
	}, m.command...)...)
	create.Dir = m.s.dir
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, rest := m.chat(t.Context(), "a")
	if text, err := io.ReadAll(rest); err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("got %q, %v, want the whole answer", text, err)
	}
	testenv.Eventually(t, "the model server is stopped", func() bool { return !m.answers() })
}
