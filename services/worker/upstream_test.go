package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	sdk "flightline/shared/worker"
)

// chatStream is the body of a request for a stream.
const chatStream = `{"model":"m","stream":true}`

// pass runs a worker that passes jobs on to a server with this handler, which is
// ready, and returns the server.
func (s *env) pass(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != pathHealth {
			h(w, r)
		}
	}))
	t.Cleanup(server.Close)
	s.run(t, Config{Upstream: Upstream{URL: server.URL + "/v1/", Key: "secret-key"}})
	return server
}

func (s *env) route(t *testing.T, route, body string) job.ID {
	t.Helper()
	return s.submit(t, func(r *job.Request) {
		r.Input = json.RawMessage(fmt.Sprintf(`{"openai_route":%q,"openai_input":%s}`, route, body))
	})
}

func TestAnUpstreamsAnswerIsTheJobsOutcome(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		handler http.HandlerFunc
		status  job.Status
		output  string
		err     string
	}{
		"JSON":      {answers(200, "application/json", `{"n":1}`), job.Completed, `[{"n":1}]`, ""},
		"a list":    {answers(200, "application/json", `[1,2]`), job.Completed, `[[1,2]]`, ""},
		"text":      {answers(200, "text/plain", "hello"), job.Completed, `["hello"]`, ""},
		"nothing":   {answers(204, "", ""), job.Completed, ``, ""},
		"no text":   {answers(200, "audio/mpeg", "\xff\xfe"), job.Failed, ``, `{"message":"the model server answered with audio/mpeg, which is neither JSON nor text","type":"server_error","code":502}`},
		"refused":   {answers(422, "application/json", `{"error":{"code":1}}`), job.Failed, ``, `upstream returned HTTP 422: {"error":{"code":1}}`},
		"broken":    {answers(503, "text/plain", "overloaded\n"), job.Failed, ``, `upstream returned HTTP 503: overloaded`},
		"elsewhere": {answers(302, "", ""), job.Failed, ``, `{"message":"the model server answered 302 Found, which is not followed","type":"server_error","code":502}`},
		"too much": {
			answers(200, "application/json", `"`+strings.Repeat("x", job.MaxOutput)+`"`),
			job.Failed, ``, "output_too_large: the model server's answer is longer than 20 MB",
		},
		"cut off": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, `{"n"`)
			},
			job.Failed, ``, `{"message":"the model server's answer broke off: unexpected EOF","type":"server_error","code":502}`,
		},
		"gone": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			job.Failed, ``, `{"message":"the model server did not answer: EOF","type":"server_error","code":502}`,
		},
		"reset in the answer": {
			func(w http.ResponseWriter, _ *http.Request) {
				if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
					_ = c.(*net.TCPConn).SetLinger(0)
					_ = c.Close()
				}
			},
			job.Failed, ``, `{"message":"the model server's answer broke off: read: connection reset by peer","type":"server_error","code":502}`,
		},
		"reset": {
			func(w http.ResponseWriter, _ *http.Request) {
				if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
					_ = c.(*net.TCPConn).SetLinger(0)
					_ = c.Close()
				}
			},
			job.Failed, ``, `{"message":"the model server did not answer: read: connection reset by peer","type":"server_error","code":502}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			s.pass(t, tt.handler)
			j := s.ended(t, s.route(t, "/v1/chat/completions", `{"model":"m"}`))
			if j.Status != tt.status || string(j.Output) != tt.output || j.Error != tt.err {
				t.Errorf("got %s %.100s %q, want %s %s %q", j.Status, j.Output, j.Error, tt.status, tt.output, tt.err)
			}
		})
	}
}

// The method, path, body and key are what an OpenAI client would send.
func TestAnUpstreamGetsTheRequest(t *testing.T) {
	s := newEnv(t)
	s.pass(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got, err := json.Marshal([]string{r.Method, r.URL.EscapedPath(), r.Header.Get("Authorization"), string(body)})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(got)
	})
	for _, tc := range [][3]string{
		{"/v1/models", `{}`, `[["GET","/v1/models","Bearer secret-key",""]]`},
		{"/v1/models/a%2Fb", `null`, `[["GET","/v1/models/a%2Fb","Bearer secret-key",""]]`},
		{"/v1/any/thing", `{"n": 1}`, `[["POST","/v1/any/thing","Bearer secret-key","{\"n\": 1}"]]`},
	} {
		if got := string(s.ended(t, s.route(t, tc[0], tc[1])).Output); got != tc[2] {
			t.Errorf("%s %s: got %s, want %s", tc[0], tc[1], got, tc[2])
		}
	}
}

func TestAnUpstreamsStreamIsPassedOnAsItComes(t *testing.T) {
	s := newEnv(t)
	goOn := make(chan struct{})
	s.pass(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, "data: \"é\"\n\ndata: \"\xc3")
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, "\xa9\"\n\ndata: [DONE]\n\n")
	})
	id := s.route(t, "/v1/chat/completions", chatStream)
	testenv.Eventually(t, "the first event", func() bool { return len(s.chunks(t, id)) == 1 })
	close(goOn)
	if j := s.ended(t, id); j.Status != job.Completed || len(j.Output) != 0 {
		t.Errorf("got %s %s", j.Status, j.Output)
	}
	var all strings.Builder
	for _, chunk := range s.chunks(t, id) {
		var text string
		if err := json.Unmarshal([]byte(chunk), &text); err != nil {
			t.Fatal(err)
		}
		all.WriteString(text)
	}
	if want := "data: \"é\"\n\ndata: \"é\"\n\ndata: [DONE]\n\n"; all.String() != want {
		t.Errorf("got %q, want %q", all.String(), want)
	}
}

func TestAStreamThatIsCutOffFailsItsJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.pass(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	id := s.route(t, "/v1/chat/completions", chatStream)
	j := s.ended(t, id)
	if j.Status != job.Failed || !strings.Contains(j.Error, "broke off: unexpected EOF") || len(s.chunks(t, id)) != 1 {
		t.Errorf("got %s %q, %d chunks", j.Status, j.Error, len(s.chunks(t, id)))
	}
}

func TestACancelEndsTheRequestToTheUpstream(t *testing.T) {
	s := newEnv(t)
	hungUp := make(chan struct{})
	s.pass(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(hungUp)
	})
	id := s.route(t, "/v1/chat/completions", chatStream)
	testenv.Eventually(t, "the first event", func() bool { return len(s.chunks(t, id)) == 1 })
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	<-hungUp
}

// A worker takes jobs while its server is ready only. A job that it took when the
// server had gone runs once it is back.
func TestJobsWaitForTheUpstream(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var loaded atomic.Bool
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == pathHealth:
			http.NotFound(w, r) // as Ollama does
		case !loaded.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, `{}`)
		}
	})
	first := httptest.NewServer(handler)
	var ready atomic.Int32
	s.run(t, Config{Upstream: Upstream{URL: first.URL}, Worker: sdk.Config{OnReady: func() { ready.Add(1) }}})
	before := s.route(t, "/v1/models", `{}`)
	loaded.Store(true)
	if j := s.ended(t, before); j.Status != job.Completed || j.Run != 1 {
		t.Fatalf("got %s, run %d: %s", j.Status, j.Run, j.Error)
	}

	address := first.Listener.Addr().String()
	first.Close()
	during := s.route(t, "/v1/models", `{}`)
	testenv.Eventually(t, "the job is given back", func() bool {
		j, err := s.q.Status(t.Context(), s.e, during)
		return err == nil && j.Status == job.InQueue && j.Run == 1
	})
	again := httptest.NewUnstartedServer(handler)
	var err error
	if again.Listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	again.Start()
	t.Cleanup(again.Close)
	if j := s.ended(t, during); j.Status != job.Completed {
		t.Errorf("got %s: %s", j.Status, j.Error)
	}
	testenv.Eventually(t, "the worker said twice that it is ready", func() bool { return ready.Load() == 2 }) // after it took the job
}

// A server that was started again refuses calls until its model is loaded, as llama.cpp
// does. A call that it refused at the last moment finds it ready.
func TestACallWaitsWhileTheModelIsLoaded(t *testing.T) {
	t.Parallel()
	for name, notReady := range map[string]int32{"it loads": 2, "it was just loaded": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			var calls, checks atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				loads := r.URL.Path == pathHealth && calls.Load() == 1 && checks.Add(1) <= notReady
				if loads || r.URL.Path != pathHealth && calls.Add(1) == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}))
			t.Cleanup(server.Close)
			s.run(t, Config{Upstream: Upstream{URL: server.URL}})
			if j := s.ended(t, s.route(t, "/v1/x", `{"n":1}`)); j.Status != job.Completed || j.Run != 1 {
				t.Errorf("got %s, run %d: %s, want it to be sent again", j.Status, j.Run, j.Error)
			}
		})
	}
}

// switched is a model server that can be down, and whose calls wait until they may end.
type switched struct {
	down   atomic.Bool
	asked  chan struct{}
	goOn   chan struct{} // closed by answer
	answer func()
}

func (m *switched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == pathHealth && m.down.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path != pathHealth:
		select {
		case m.asked <- struct{}{}:
		default: // one is enough
		}
		<-m.goOn
		_, _ = io.WriteString(w, `{}`)
	}
}

// start runs a worker of the model server until the test ends. log has what it says.
func (m *switched) start(t *testing.T, worker sdk.Config) (ended <-chan error, log *testenv.Log) {
	t.Helper()
	m.asked, m.goOn = make(chan struct{}, 1), make(chan struct{})
	m.answer = sync.OnceFunc(func() { close(m.goOn) })
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	log = &testenv.Log{}
	service, err := New(Config{Upstream: Upstream{URL: server.URL}, Worker: worker}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done, over := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(over)
		done <- service.Run(ctx)
	}()
	t.Cleanup(func() { m.answer(); stop(); <-over })
	return done, log
}

func says(t *testing.T, log *testenv.Log, text string, times int) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("the worker says %d times %q", times, text), func() bool { return strings.Count(log.String(), text) >= times })
}

// The operator drains a worker and then stops its model server.
func TestADrainedWorkerEndsAlsoWhereItsServerIsDown(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var m switched
	ended, log := m.start(t, sdk.Config{NC: s.Connect(t), Endpoint: s.e.ID, ID: "w1", Grace: time.Hour})
	says(t, log, "worker ready", 1) // its pod is on record
	id := s.route(t, "/v1/x", `{"n":1}`)
	<-m.asked
	reg, err := registry.New(t.Context(), s.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, reg.Run)
	testenv.Retry(t, func() error {
		_, err := reg.Pods.Drain(t.Context(), "w1", "maintenance", s.q.Now())
		return err
	})
	says(t, log, "draining by request", 1)
	m.down.Store(true)
	says(t, log, "the model server is down", 1)
	m.answer()
	if j := s.ended(t, id); j.Status != job.Completed {
		t.Errorf("got %s %s", j.Status, j.Error)
	}
	m.down.Store(false)
	testenv.Eventually(t, "the worker ends, or its server is ready for it again", func() bool {
		return len(ended) == 1 || strings.Count(log.String(), "the model server is ready") == 2
	})
	if len(ended) == 0 {
		t.Fatal("the drained worker asks for jobs again")
	}
	if err := <-ended; err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
}

func TestWhatAWorkerSitsOut(t *testing.T) {
	for err, want := range map[error]bool{
		nats.ErrNoServers: true, nats.ErrAuthorization: true, bus.ErrUnavailable: true, context.DeadlineExceeded: true,
		nil: false, endpoint.ErrNotFound: false, sdk.ErrConfig: false, sdk.ErrStuck: false, sdk.ErrWake: false,
	} {
		if err != nil {
			err = fmt.Errorf("start worker: %w", err)
		}
		if got := mayHeal(err); got != want {
			t.Errorf("%v: got %v", err, got)
		}
	}
}

// A machine's restart may take both away, and bring the model server back first.
func TestAModelServerMayComeBackWhileNATSIsAway(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	at := s.Config()
	var m switched
	ended, log := m.start(t, sdk.Config{NATSURL: at.URL, User: at.User, Password: at.Password, Endpoint: s.e.ID})
	m.answer()
	says(t, log, "worker ready", 1)
	m.down.Store(true)
	says(t, log, "the model server is down", 1)
	s.Stop()
	m.down.Store(false)
	says(t, log, "the model server is ready", 2)
	says(t, log, "NATS cannot be reached", 1)
	s.Start()
	says(t, log, "worker ready", 2)
	if j := s.ended(t, s.route(t, "/v1/x", `{"n":1}`)); j.Status != job.Completed {
		t.Errorf("got %s %s", j.Status, j.Error)
	}
	select {
	case err := <-ended:
		t.Errorf("the worker ended: %v", err)
	default:
	}
}

func TestAWorkerEndsWithTheServerThatItStarted(t *testing.T) {
	s := newEnv(t)
	server := httptest.NewServer(http.NotFoundHandler()) // not ready
	t.Cleanup(server.Close)
	service, err := New(Config{
		Worker: sdk.Config{NC: s.Connect(t), Endpoint: s.e.ID}, Upstream: Upstream{URL: server.URL},
		Command: []string{"sh", "-c", "echo no memory >&2; exit 3"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = service.Run(t.Context())
	if !errors.Is(err, errServerEnded) || !strings.Contains(err.Error(), "exit status 3: no memory") {
		t.Errorf("got %v", err)
	}
}

func TestCallsThatAreRefused(t *testing.T) {
	for input, want := range map[string]string{
		`{}`:                                          `"code":400`,
		`{"openai_route":1}`:                          `"code":400`,
		`{"openai_route":"/v1/a?b"}`:                  `"code":400`,
		`{"openai_route":"/v1/%zz"}`:                  `"code":400`,
		`{"openai_route":"/api/delete"}`:              `"code":404`,
		`{"openai_route":"/v1/../sleep"}`:             `"code":404`,
		`{"openai_route":"/v1/%2e%2e/sleep"}`:         `"code":404`,
		`{"openai_route":"/v1","openai_input":{}}`:    `"code":404`,
		`{"openai_route":"/v1/a","openai_input":[1]}`: `"code":400`,
		`{"prompt":"a","sampling_params":1}`:          `"code":400`,
	} {
		if _, err := callOf(json.RawMessage(input)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", input, err, want)
		}
	}
}

func TestWhenAServerCountsAsDown(t *testing.T) {
	start := time.Now()
	for name, tc := range map[string]struct {
		seen  []health
		every time.Duration
		down  bool
	}{
		"a hiccup":           {[]health{away, away}, time.Second, false},
		"it refuses":         {[]health{away, away, away}, time.Second, true},
		"it came back":       {[]health{away, away, healthy, away, away}, time.Second, false},
		"it computes":        {[]health{silent, silent, silent}, 10 * time.Second, false},
		"it does not answer": {[]health{silent, silent, silent, silent}, 10 * time.Second, true},
		"one refusal":        {[]health{silent, away}, 10 * time.Second, false},
		"now and then":       {[]health{away, silent, away, silent, away}, time.Second, false},
		"neither for long":   {[]health{silent, away, silent, away}, 10 * time.Second, true},
	} {
		var d downtime
		down := false
		for i, seen := range tc.seen {
			down = d.observe(seen, start.Add(time.Duration(i)*tc.every))
		}
		if down != tc.down {
			t.Errorf("%s: got %v, want %v", name, down, tc.down)
		}
	}
}

// Neither the login of the address nor the key is in a log line or an error.
func TestNoLogShowsTheUpstreamsSecrets(t *testing.T) {
	var log strings.Builder
	u, err := newUpstream(Upstream{URL: "http://user:pa55@127.0.0.1:1", Key: "k3y"}, 1, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	seen, why := u.checkHealth(t.Context())
	log.WriteString(why)
	_, err = u.sendOnce(t.Context(), call{method: http.MethodGet, route: pathModels}) //nolint:bodyclose // there is no answer
	if seen != away || err == nil || strings.Contains(log.String()+err.Error(), "pa55") || strings.Contains(log.String()+err.Error(), "k3y") {
		t.Errorf("got %v, %v, %s", seen, err, &log)
	}
	for _, url := range []string{"ftp://u:pa55@h", "http://u:pa55@h/?q=1", "http://[u:pa55@h"} {
		if _, err := newUpstream(Upstream{URL: url}, 1, nil); !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "pa55") {
			t.Errorf("got %v", err)
		}
	}
	if _, err := newUpstream(Upstream{URL: "http://h", Key: "k3y\r"}, 1, nil); !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "k3y") {
		t.Errorf("a key that no request could bring: got %v", err)
	}
}

func FuzzCallOf(f *testing.F) {
	f.Add(`{"openai_route":"/v1/chat/completions","openai_input":{"model":"m"}}`)
	f.Add(`{"prompt":"p","sampling_params":{}}`)
	f.Fuzz(func(t *testing.T, input string) {
		c, err := callOf(json.RawMessage(input))
		if err == nil && !strings.HasPrefix(c.route, "/v1/") && !strings.Contains(c.route, "%") {
			t.Errorf("got the route %q", c.route)
		}
	})
}
