package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/shared/worker"
)

// env is a running Flightline, seen by a client that takes turns between
// its API instances and holds every answer against openapi.json.
type env struct {
	bases   []string // of the queue API
	control string
	key     string
	nats    worker.Config // how workers get in
	http    *http.Client
	checked *checked
	turn    atomic.Int64
	places  atomic.Int64
	making  chan struct{} // full while as many as it holds make an endpoint
}

func newEnv(t *testing.T, key, control string, bases ...string) *env {
	t.Helper()
	pool := &http.Transport{MaxIdleConnsPerHost: 600, DisableCompression: true}
	t.Cleanup(pool.CloseIdleConnections)
	checked := newChecked(t, pool)
	return &env{bases: bases, control: control, key: key, http: &http.Client{Transport: checked}, checked: checked, making: make(chan struct{}, 4)}
}

// run is where one scenario plays.
type run struct {
	*testing.T
	*env
}

func (s *run) endpoint(settings string) *testEndpoint {
	s.Helper()
	return s.env.endpoint(s.T, settings)
}

func (s *run) send(c call) answer {
	s.Helper()
	return s.env.send(s.T, c)
}

// call is a request as a scenario puts it.
type call struct {
	method, path, body string
	header             map[string]string // "" removes one
	reader             io.Reader         // instead of body
	// wrong says that the request is meant not to fit openapi.json; its answer
	// still has to.
	wrong bool
	// unchecked spares one of very many the comparison with openapi.json.
	unchecked bool
	// gateway says that it is a worker's request: it goes where control does.
	gateway bool
	// turn says whose turn it is; a place has its own, so that its requests go
	// to the instances evenly.
	turn *atomic.Int64
}

// answer is what came back, and between which instants.
type answer struct {
	status         int
	header         http.Header
	raw            string
	body           map[string]any // nil if it is no object
	sent, answered time.Time
}

func (a answer) text(field string) string { s, _ := a.body[field].(string); return s }
func (a answer) number(field string) int  { n, _ := a.body[field].(float64); return int(n) }

// send sends the request to an instance and fails the test if nothing comes
// back, or what comes back is not what openapi.json says. A question that a JetStream
// which stands still leaves open, a 503, is asked again, as clients do.
func (w *env) send(t *testing.T, c call) answer {
	t.Helper()
	for late := time.Now().Add(program.Soon); ; {
		a, err := w.try(t.Context(), c)
		if err != nil {
			t.Fatalf("%s %s: %v", c.method, c.path, err)
		}
		if c.method != http.MethodGet || a.status != http.StatusServiceUnavailable || time.Now().After(late) {
			return a
		}
	}
}

func (w *env) try(ctx context.Context, c call) (answer, error) {
	resp, sent, err := w.open(ctx, c)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, fmt.Errorf("read the answer: %w", err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw), sent: sent, answered: time.Now()}
	if bytes.HasPrefix(raw, []byte("{")) {
		err = json.Unmarshal(raw, &a.body)
	}
	return a, err
}

// open sends the request and leaves the answer's body to be read.
func (w *env) open(ctx context.Context, c call) (*http.Response, time.Time, error) {
	if c.turn == nil {
		c.turn = &w.turn
	}
	base, reader := w.bases[int(c.turn.Add(1))%len(w.bases)], c.reader
	if c.gateway || strings.HasPrefix(c.path, "/v1") {
		base = w.control
	}
	if reader == nil {
		reader = strings.NewReader(c.body)
	}
	if c.wrong {
		ctx = context.WithValue(ctx, wrongKey{}, isWrong)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, base+c.path, reader)
	if err != nil {
		return nil, time.Time{}, err
	}
	req.Header.Set("Authorization", "Bearer "+w.key)
	if c.body != "" || c.reader != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range c.header {
		if req.Header.Set(name, value); value == "" {
			req.Header.Del(name)
		}
	}
	sent := time.Now()
	client := w.http
	if c.unchecked {
		client = &http.Client{Transport: w.checked.next}
	}
	resp, err := client.Do(req)
	return resp, sent, err
}

// inTurn is a transport for clients that know one address: the instances of
// the API take turns at each path, since each has its part of a limit, and control gets
// what is not theirs.
type inTurn struct {
	*env

	mu   sync.Mutex
	sent map[string]int // requests by path
}

// RoundTrip implements http.RoundTripper.
func (i *inTurn) RoundTrip(req *http.Request) (*http.Response, error) {
	base := i.control
	if !workerProtocol(req.URL.Path) && !strings.HasPrefix(req.URL.Path, "/v1") {
		i.mu.Lock()
		i.sent[req.URL.Path]++
		base = i.bases[i.sent[req.URL.Path]%len(i.bases)]
		i.mu.Unlock()
	}
	to, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	req = req.Clone(context.WithValue(req.Context(), wrongKey{}, mayBeRefused))
	req.URL.Scheme, req.URL.Host, req.Host = to.Scheme, to.Host, ""
	return i.checked.RoundTrip(req)
}

// workerProtocol matches a worker's requests: the gateway answers them.
func workerProtocol(path string) bool {
	return strings.Contains(path, "/job-") || strings.Contains(path, "/ping/")
}

// testEndpoint is an endpoint of a scenario's own.
type testEndpoint struct {
	*env
	t    *testing.T
	id   string
	turn atomic.Int64
}

func (p *testEndpoint) send(c call) answer {
	p.t.Helper()
	c.turn = &p.turn
	return p.env.send(p.t, c)
}

func (p *testEndpoint) try(ctx context.Context, c call) (answer, error) {
	c.turn = &p.turn
	return p.env.try(ctx, c)
}

// endpoint makes an endpoint with these settings, as JSON fields.
func (w *env) endpoint(t *testing.T, settings string) *testEndpoint {
	t.Helper()
	p := &testEndpoint{env: w, t: t, id: w.createEndpoint(t, settings)}
	p.everywhere("the endpoint is served", func() bool { return p.do("GET", "/health", "").status == http.StatusOK })
	return p
}

// createEndpoint makes an endpoint and returns its id. An endpoint is streams and consumers,
// so few are made at a time: each must be there within 5 s, or it is a 503, on
// which another one is tried.
func (w *env) createEndpoint(t *testing.T, settings string) string {
	t.Helper()
	if settings != "" {
		settings = "," + settings
	}
	w.making <- struct{}{}
	defer func() { <-w.making }()
	for late := time.Now().Add(program.Soon); ; {
		id := fmt.Sprintf("place-%d", w.places.Add(1))
		a := w.send(t, call{method: "POST", path: "/v1/endpoints", body: fmt.Sprintf(`{"id":%q%s}`, id, settings)})
		if a.status == http.StatusOK {
			return id
		}
		if a.status != http.StatusServiceUnavailable || time.Now().After(late) {
			t.Fatalf("make endpoint: got %d %s", a.status, a.raw)
		}
	}
}

func (p *testEndpoint) path(rest string) string { return "/v2/" + p.id + rest }

func (p *testEndpoint) do(method, rest, body string) answer {
	p.t.Helper()
	return p.send(call{method: method, path: p.path(rest), body: body})
}

// wrong sends a request that is meant to be refused.
func (p *testEndpoint) wrong(method, rest, body string) answer {
	p.t.Helper()
	return p.send(call{method: method, path: p.path(rest), body: body, wrong: true})
}

// submit queues a job with this input and policy ("" for none).
func (p *testEndpoint) submit(input, policy string) answer {
	p.t.Helper()
	if policy != "" {
		policy = `,"policy":` + policy
	}
	a := p.do("POST", "/run", `{"input":`+input+policy+`}`)
	p.want(a, http.StatusOK, "status", "IN_QUEUE")
	if a.text("id") == "" {
		p.t.Fatalf("run: got %s, want an id", a.raw)
	}
	return a
}

func (p *testEndpoint) status(id string) answer { p.t.Helper(); return p.do("GET", "/status/"+id, "") }

// until polls the job until it has the status.
func (p *testEndpoint) until(id, status string) answer {
	p.t.Helper()
	var a answer
	p.eventually(status, func() bool { a = p.status(id); return a.text("status") == status })
	return a
}

func (p *testEndpoint) eventually(what string, holds func() bool) {
	p.t.Helper()
	testenv.Eventually(p.t, what, holds)
}

// everywhere waits until holds, which sends one request, is true for each
// instance: they are asked in turn.
func (p *testEndpoint) everywhere(what string, holds func() bool) {
	p.t.Helper()
	row := 0
	p.eventually(what, func() bool {
		if row++; !holds() {
			row = 0
		}
		return row == len(p.bases)
	})
}

// want compares the status and some fields of the answer, each a name and then
// a text that its value has.
func (p *testEndpoint) want(a answer, status int, fields ...string) {
	p.t.Helper()
	same := a.status == status
	for i := 0; i+1 < len(fields); i += 2 {
		same = same && strings.Contains(fmt.Sprint(a.body[fields[i]]), fields[i+1])
	}
	if !same {
		p.t.Fatalf("got %d %.300s, want %d %v", a.status, a.raw, status, fields)
	}
}
