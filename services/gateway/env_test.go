package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/web"
	"flightline/streams"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

const (
	// patience bounds every wait for a fact.
	patience = 2 * time.Minute
	// shortHold is how long the polls of most tests are held.
	shortHold = 300 * time.Millisecond
)

// env is a bus with the endpoint "ep", and the queue of those who submit.
type env struct {
	t          testing.TB
	bus        *testenv.Server
	queue      *queue.Queue
	registry   *registry.Registry
	endpoint   endpoint.Endpoint
	bodyMemory int // of gateways that are started; 0 is that of web
}

// newEnv lets other tests run meanwhile: most of what a test takes is waiting.
func newEnv(t testing.TB, change ...func(*endpoint.Endpoint)) *env {
	t.Helper()
	if parallel, ok := t.(*testing.T); ok {
		parallel.Parallel()
	}
	return newSiteAlone(t, change...)
}

// newSiteAlone is for tests of what is promised within a second or less.
func newSiteAlone(t testing.TB, change ...func(*endpoint.Endpoint)) *env {
	t.Helper()
	s := &env{t: t, bus: testenv.NewServer(t)}
	must(t, streams.Apply(t.Context(), s.bus.JS, streams.Config{}))
	var err error
	s.registry, err = registry.New(t.Context(), s.bus.JS, nil)
	must(t, err)
	s.queue, err = queue.New(t.Context(), s.bus.NC, queue.Config{})
	must(t, err)
	e, err := s.registry.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "ep", Created: time.Now()})
	must(t, err)
	for _, c := range change {
		c(&e)
	}
	e, err = s.registry.Endpoints.Update(t.Context(), "ep", func(endpoint.Endpoint) (endpoint.Endpoint, error) { return e, nil })
	must(t, err)
	s.endpoint = e
	must(t, s.queue.CreateEndpoint(t.Context(), e))
	testenv.Background(t, s.registry.Run)
	testenv.Background(t, s.queue.Run)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// instance is one running gateway, with a connection of its own.
type instance struct {
	service *Service
	base    string
	stop    func()
}

// gateway starts an instance.
func (s *env) gateway(cfg Config) *instance {
	s.t.Helper()
	return s.gatewayOn(s.bus.Connect(s.t), cfg)
}

func (s *env) gatewayOn(nc *nats.Conn, cfg Config) *instance {
	s.t.Helper()
	if cfg.Hold == 0 {
		cfg.Hold = shortHold
	}
	q, err := queue.New(s.t.Context(), nc, queue.Config{})
	must(s.t, err)
	g, err := New(cfg, Deps{Queue: q, Registry: s.registry})
	must(s.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.t, err)
	app := web.New(web.Config{BodyLimit: 32 << 20, BodyMemory: s.bodyMemory, Oversized: g.Oversized})
	g.Routes(app)
	stops := []func(){
		testenv.Background(s.t, q.Run), testenv.Background(s.t, g.Run),
		testenv.Background(s.t, func(ctx context.Context) error { return web.Serve(ctx, app, listener) }),
	}
	return &instance{service: g, base: "http://" + listener.Addr().String() + "/v2/ep", stop: func() {
		for _, stop := range stops {
			stop()
		}
	}}
}

// worker is a scripted worker that sends what RunPod's SDK sends, to each of
// its gateways in turn.
type worker struct {
	s     *env
	id    string
	token string
	gates []*instance
	sent  int
}

func (s *env) worker(id string, gates ...*instance) *worker {
	s.t.Helper()
	plain, _, err := s.registry.Tokens.Issue(s.t.Context(), "ep", id)
	must(s.t, err)
	return &worker{s: s, id: id, token: plain, gates: gates}
}

type answer struct {
	status int
	header http.Header
	raw    string
	closed bool // the connection ends with it
}

// send sends one request; %w in the path is the worker's id.
func (w *worker) send(method, path string, body io.Reader) answer {
	w.s.t.Helper()
	a, err := w.try(w.s.t.Context(), method, path, body)
	if err != nil {
		w.s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (w *worker) try(ctx context.Context, method, path string, body io.Reader) (answer, error) {
	gate := w.gates[w.sent%len(w.gates)]
	w.sent++
	req, err := http.NewRequestWithContext(ctx, method, gate.base+strings.ReplaceAll(path, "%w", w.id), body)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", w.token)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Charset", "utf-8")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(raw), resp.Close}, err
}

// taken is a job as the worker got it.
type taken struct {
	ID       string          `json:"id"`
	Input    json.RawMessage `json:"input"`
	Webhook  string          `json:"webhook"`
	S3Config json.RawMessage `json:"s3Config"`
	Policy   json.RawMessage `json:"policy"`
}

// take polls until there is a job.
func (w *worker) take() taken {
	w.s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		a := w.send("GET", "/job-take/%w?gpu=any&job_in_progress=0", nil)
		if a.status == http.StatusNoContent {
			continue
		}
		var got taken
		if a.status != 200 || a.header.Get("Content-Type") != "application/json" || json.Unmarshal([]byte(a.raw), &got) != nil {
			w.s.t.Fatalf("take: got %d %q", a.status, a.raw)
		}
		return got
	}
	w.s.t.Fatalf("no job within %s", patience)
	return taken{}
}

// done posts a result and wants 200 for it.
func (w *worker) done(id, body string) {
	w.s.t.Helper()
	w.ok("POST", "/job-done/%w/"+id+"?gpu=any&isStream=false", body)
}

func (w *worker) emit(id, body string) {
	w.s.t.Helper()
	w.ok("POST", "/job-stream/%w/"+id+"?gpu=any&isStream=false", body)
}

func (w *worker) ping(ids ...string) {
	w.s.t.Helper()
	list := ""
	if len(ids) > 0 {
		list = "&job_id=" + strings.Join(ids, "%2C")
	}
	w.ok("GET", "/ping/%w?gpu=any"+list+"&runpod_version=1.12.0", "")
}

func (w *worker) ok(method, path, body string) {
	w.s.t.Helper()
	if a := w.send(method, path, strings.NewReader(body)); a.status != 200 {
		w.s.t.Errorf("%s %s: got %d %s, want 200", method, path, a.status, a.raw)
	}
}

// submit queues a job.
func (s *env) submit(change ...func(*job.Request)) string {
	s.t.Helper()
	r := job.Request{Input: json.RawMessage(`{"n": 1}`)}
	for _, c := range change {
		c(&r)
	}
	id := queue.NewID(job.Async)
	_, err := s.queue.Submit(s.t.Context(), s.endpoint, id, job.Async, r)
	must(s.t, err)
	return string(id)
}

func (s *env) status(id string) *job.Job {
	s.t.Helper()
	j, err := s.queue.Status(s.t.Context(), s.endpoint, job.ID(id))
	must(s.t, err)
	return j
}

// is checks a job's status, output and error.
func (s *env) is(id string, want job.Status, output, text string) *job.Job {
	s.t.Helper()
	j := s.status(id)
	if j.Status != want || string(j.Output) != output || j.Error != text {
		s.t.Errorf("got %s, output %.200s, error %.200q, want %s, %.200s, %.200q", j.Status, j.Output, j.Error, want, output, text)
	}
	return j
}
