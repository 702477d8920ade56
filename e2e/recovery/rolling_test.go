package recovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
)

// rollingKey is the administrator's key.
const rollingKey = "fl_test_key_of_the_rolling_restart"

// balancer sends each request to one of the two instances of a role that says
// it is ready. Like any balancer it tries the other one if a connection is
// refused, as nothing was sent then; what fails later fails for its client.
type balancer struct {
	client *http.Client
	up     [2]atomic.Bool
	failed atomic.Int64 // answers of status 500 and above, also those that a client tries again
	urls   [2]string
	turn   atomic.Int64
}

// lookEvery is how often the balancer asks an instance whether it is ready;
// drain is several times that.
const (
	lookEvery = 100 * time.Millisecond
	drain     = 500 * time.Millisecond
)

// look keeps up what the instance says of itself.
func (b *balancer) look(ctx context.Context, i int) {
	for ctx.Err() == nil {
		res, err := program.Readyz(ctx, b.urls[i])
		b.up[i].Store(err == nil && res == http.StatusOK)
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
	}
}

// RoundTrip passes a request on and its answer back.
func (b *balancer) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	first := int(b.turn.Add(1)) % 2
	if !b.up[first].Load() {
		first = 1 - first
	}
	for i, at := range []int{first, 1 - first} {
		again := req.Clone(req.Context())
		target, err := url.Parse(b.urls[at])
		if err != nil {
			return nil, err
		}
		again.URL.Host, again.Host, again.Body = target.Host, target.Host, io.NopCloser(bytes.NewReader(body))
		res, err := b.client.Transport.RoundTrip(again)
		if i == 0 && errors.Is(err, syscall.ECONNREFUSED) {
			continue
		}
		if err == nil && res.StatusCode >= http.StatusInternalServerError {
			b.failed.Add(1)
		}
		return res, err
	}
	return nil, errors.New("no instance")
}

// pair is the two instances of a role behind their balancer.
type pair struct {
	s    *program.Env
	role string
	args []string
	one  [2]*program.Process
	*balancer
}

func newPair(t *testing.T, s *program.Env, role string, args ...string) *pair {
	t.Helper()
	pool := &http.Transport{MaxIdleConnsPerHost: 100}
	p := &pair{s: s, role: role, args: args, balancer: &balancer{client: &http.Client{Transport: pool}}}
	for i := range p.one {
		p.one[i] = p.start(i, "127.0.0.1:0")
		p.urls[i] = p.one[i].Line(program.Ready)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range p.one {
		wg.Go(func() { p.look(ctx, i) })
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		pool.CloseIdleConnections()
	})
	p.await(0, true)
	p.await(1, true)
	return p
}

func (p *pair) start(i int, listen string) *program.Process {
	args := append([]string{"serve", p.role, "--listen", listen, "--drain-delay", drain.String()}, p.args...)
	if p.role == "autoscaler" {
		args = append(args, "--fleet-folder", fmt.Sprint("fleet-", i))
	}
	return p.s.Start(args...)
}

func (p *pair) await(i int, up bool) {
	p.s.T.Helper()
	p.s.Eventually(fmt.Sprintf("the balancer takes %s %d for up: %v", p.role, i, up), func() bool { return p.up[i].Load() == up })
}

// restart stops an instance as a supervisor does, and starts it again.
func (p *pair) restart(i int) {
	p.s.T.Helper()
	p.one[i].Stop(program.Soon)
	p.await(i, false)
	p.one[i] = p.start(i, strings.TrimPrefix(p.urls[i], "http://"))
	p.one[i].Line(program.Ready)
	p.await(i, true)
}

// Every role has two instances, and each is restarted under load, one after
// the other: no request fails, and each job that was accepted is done.
func TestARollingRestartFailsNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	s, cfg := program.New(t), testenv.NewServer(t).Config()
	s.Environ = append(s.Environ, "NATS_URL="+cfg.URL, "FLIGHTLINE_NATS_USER="+cfg.User, "FLIGHTLINE_NATS_PASSWORD="+cfg.Password,
		"FLIGHTLINE_BOOTSTRAP_KEY="+rollingKey, "FLIGHTLINE_LIMITS=off")
	control, api, gateway := newPair(t, s, "control"), newPair(t, s, "api"), newPair(t, s, "gateway")
	pairs := []*pair{control, api, gateway, newPair(t, s, "recorder"), newPair(t, s, "webhook"), newPair(t, s, "autoscaler")}
	r := &rolling{T: t, control: via(t, control), api: via(t, api)}
	if _, err := r.control.Endpoints().Create(t.Context(), client.EndpointSpec{ID: "ep"}); err != nil {
		t.Fatal(err)
	}
	token := r.token(control)

	ctx, stop := context.WithCancel(t.Context())
	var clients, workers sync.WaitGroup
	for range 2 {
		workers.Go(func() { r.work(ctx, gateway, token) })
		clients.Go(func() { r.submit(ctx) })
	}
	clients.Go(func() { r.wait(ctx) })
	clients.Go(func() { r.list(ctx) })
	for _, p := range pairs {
		for i := range p.one {
			p.restart(i)
		}
	}
	stop()
	clients.Wait()
	workers.Wait()
	ctx, stop = context.WithCancel(t.Context())
	workers.Go(func() { r.work(ctx, gateway, token) })
	for _, id := range r.ids {
		if j, err := r.api.Wait(t.Context(), "ep", id); err != nil || j.Status != job.Completed {
			t.Errorf("job %s: got %+v, %v, want it COMPLETED", id, j, err)
		}
	}
	stop()
	workers.Wait()
	t.Logf("%d requests, %d jobs", r.requests.Load(), len(r.ids))
	for _, p := range pairs {
		if n := p.failed.Load(); n > 0 {
			t.Errorf("%s: got %d answers of status 500 or above, want none", p.role, n)
		}
	}
	if len(r.ids) < 50 || r.failed.Load() > 0 {
		t.Errorf("got %d jobs and %d failed requests, want 50 or more and none", len(r.ids), r.failed.Load())
	}
}

// via is a client behind the balancer.
func via(t *testing.T, p *pair) *client.Client {
	t.Helper()
	c, err := client.New(p.urls[0], rollingKey, client.WithHTTPClient(&http.Client{Transport: p.balancer}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rolling is the load of the test.
type rolling struct {
	*testing.T
	control, api     *client.Client
	requests, failed atomic.Int64

	mu  sync.Mutex
	ids []job.ID
}

// did counts a request. What ends with the test is no failure.
func (r *rolling) did(ctx context.Context, what string, err error) bool {
	r.requests.Add(1)
	if err == nil {
		return true
	}
	if ctx.Err() == nil {
		r.failed.Add(1)
		r.Errorf("%s: %s: %v", time.Now().Format(time.TimeOnly), what, err)
	}
	return false
}

func (r *rolling) submit(ctx context.Context) {
	for ctx.Err() == nil {
		j, err := r.api.Run(ctx, "ep", client.Request{Input: map[string]int{"n": 1}})
		if !r.did(ctx, "run", err) {
			continue
		}
		r.mu.Lock()
		r.ids = append(r.ids, j.ID)
		r.mu.Unlock()
		_, err = r.api.Status(ctx, "ep", j.ID)
		r.did(ctx, "status", err)
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// wait holds requests that a restart meets.
func (r *rolling) wait(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := r.api.RunSync(ctx, "ep", client.Request{Input: map[string]int{"n": 1}}, 5*time.Second)
		r.did(ctx, "runsync", err)
	}
}

func (r *rolling) list(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := r.control.Endpoints().List(ctx)
		r.did(ctx, "list endpoints", err)
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (r *rolling) token(p *pair) string {
	r.Helper()
	var issued struct {
		Token string `json:"token"`
	}
	if _, err := ask(r.Context(), p, "POST", "/v1/endpoints/ep/workers", rollingKey, `{"id":"w"}`, &issued); err != nil || issued.Token == "" {
		r.Fatalf("got %+v, %v, want a worker's token", issued, err)
	}
	return issued.Token
}

// work is a worker that speaks RunPod's protocol: it takes a job and posts its
// result.
func (r *rolling) work(ctx context.Context, p *pair, token string) {
	for ctx.Err() == nil {
		var taken struct {
			ID string `json:"id"`
		}
		status, err := ask(ctx, p, "GET", "/v2/ep/job-take/w", token, "", &taken)
		if !r.did(ctx, "job-take", err) || status == http.StatusNoContent {
			continue
		}
		kept := context.WithoutCancel(ctx) // what was taken is finished
		_, err = ask(kept, p, "POST", "/v2/ep/job-done/w/"+taken.ID, token, `{"output":{"done":true}}`, nil)
		r.did(kept, "job-done", err)
	}
}

// ask sends a request through the balancer; what is no success is an error.
func ask(ctx context.Context, p *pair, method, path, key, body string, answer any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.urls[0]+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := p.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("status %d: %s", res.StatusCode, data)
	}
	if err != nil || answer == nil || len(data) == 0 {
		return res.StatusCode, err
	}
	return res.StatusCode, json.Unmarshal(data, answer)
}
