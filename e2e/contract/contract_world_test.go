package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flightline/e2e/site"
	"flightline/shared/worker"
)

// world is a running Flightline, seen by a client that takes turns between
// its API instances and holds every answer against openapi.json.
type world struct {
	bases   []string // of the queue API
	control string
	key     string
	nats    worker.Config // how workers get in
	http    *http.Client
	turn    atomic.Int64
	places  atomic.Int64
	making  chan struct{} // full while as many as it holds make an endpoint
}

func newWorld(t *testing.T, key, control string, bases ...string) *world {
	t.Helper()
	pool := &http.Transport{MaxIdleConnsPerHost: 600, DisableCompression: true}
	t.Cleanup(pool.CloseIdleConnections)
	return &world{bases: bases, control: control, key: key, http: &http.Client{Transport: newChecked(t, pool)}, making: make(chan struct{}, 4)}
}

// stage is where one scenario plays.
type stage struct {
	*testing.T
	*world
}

func (s *stage) place(settings string) *place {
	s.Helper()
	return s.world.place(s.T, settings)
}

func (s *stage) send(c call) answer {
	s.Helper()
	return s.world.send(s.T, c)
}

// call is a request as a scenario puts it.
type call struct {
	method, path, body string
	header             map[string]string // "" removes one
	reader             io.Reader         // instead of body
	// wrong says that the request is meant not to fit openapi.json; its answer
	// still has to.
	wrong bool
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
// back, or what comes back is not what openapi.json says.
func (w *world) send(t *testing.T, c call) answer {
	t.Helper()
	a, err := w.try(t.Context(), c)
	if err != nil {
		t.Fatalf("%s %s: %v", c.method, c.path, err)
	}
	return a
}

func (w *world) try(ctx context.Context, c call) (answer, error) {
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
func (w *world) open(ctx context.Context, c call) (*http.Response, time.Time, error) {
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
		ctx = context.WithValue(ctx, wrongKey{}, true)
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
	resp, err := w.http.Do(req)
	return resp, sent, err
}

// place is an endpoint of a scenario's own.
type place struct {
	*world
	t    *testing.T
	id   string
	turn atomic.Int64
}

func (p *place) send(c call) answer {
	p.t.Helper()
	c.turn = &p.turn
	return p.world.send(p.t, c)
}

func (p *place) try(ctx context.Context, c call) (answer, error) {
	c.turn = &p.turn
	return p.world.try(ctx, c)
}

// place makes an endpoint with these settings, as JSON fields.
func (w *world) place(t *testing.T, settings string) *place {
	t.Helper()
	p := &place{world: w, t: t, id: w.endpoint(t, settings)}
	p.everywhere("the endpoint is served", func() bool { return p.do("GET", "/health", "").status == http.StatusOK })
	return p
}

// endpoint makes one and returns its id. An endpoint is streams and consumers,
// so few are made at a time: each must be there within 5 s, or it is a 503, on
// which another one is tried.
func (w *world) endpoint(t *testing.T, settings string) string {
	t.Helper()
	if settings != "" {
		settings = "," + settings
	}
	w.making <- struct{}{}
	defer func() { <-w.making }()
	for late := time.Now().Add(site.Soon); ; {
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

func (p *place) path(rest string) string { return "/v2/" + p.id + rest }

func (p *place) do(method, rest, body string) answer {
	p.t.Helper()
	return p.send(call{method: method, path: p.path(rest), body: body})
}

// wrong sends a request that is meant to be refused.
func (p *place) wrong(method, rest, body string) answer {
	p.t.Helper()
	return p.send(call{method: method, path: p.path(rest), body: body, wrong: true})
}

// submit queues a job with this input and policy ("" for none).
func (p *place) submit(input, policy string) answer {
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

func (p *place) status(id string) answer { p.t.Helper(); return p.do("GET", "/status/"+id, "") }

// until polls the job until it has the status.
func (p *place) until(id, status string) answer {
	p.t.Helper()
	var a answer
	p.eventually(status, func() bool { a = p.status(id); return a.text("status") == status })
	return a
}

func (p *place) eventually(what string, holds func() bool) {
	p.t.Helper()
	late := time.Now().Add(site.Soon)
	for !holds() {
		if time.Now().After(late) {
			p.t.Fatalf("never within %v: %s", site.Soon, what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// everywhere waits until holds, which sends one request, is true for each
// instance: they are asked in turn.
func (p *place) everywhere(what string, holds func() bool) {
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
func (p *place) want(a answer, status int, fields ...string) {
	p.t.Helper()
	same := a.status == status
	for i := 0; i+1 < len(fields); i += 2 {
		same = same && strings.Contains(fmt.Sprint(a.body[fields[i]]), fields[i+1])
	}
	if !same {
		p.t.Fatalf("got %d %.300s, want %d %v", a.status, a.raw, status, fields)
	}
}
