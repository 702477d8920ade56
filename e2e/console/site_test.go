package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/shared/worker"
)

// site is a dev and a browser in front of it.
type site struct {
	*program.Env

	url     string // of the dev, without a path
	key     string // may do everything
	client  *client.Client
	bus     worker.Config // how workers reach NATS
	browser context.Context
}

// newSite starts a dev without the demo, and a browser.
func newSite(t *testing.T) *site {
	t.Helper()
	browser := newBrowser(t)
	s := &site{Env: program.New(t), browser: browser}
	dev := s.Start("dev", "--no-demo", "--limits", "off")
	t.Cleanup(dev.Tell)
	s.url = dev.Line(program.Ready)
	var got struct{ APIKey, NatsURL, NatsUser, NatsPassword string }
	program.Decode(t, s.OK("env", "-o", "json"), &got)
	s.key = got.APIKey
	s.bus = worker.Config{NATSURL: got.NatsURL, User: got.NatsUser, Password: got.NatsPassword}
	var err error
	if s.client, err = client.New(s.url, s.key); err != nil {
		t.Fatal(err)
	}
	return s
}

// soon bounds every wait for a fact that should hold within moments.
const soon = 20 * time.Second

// endpoint makes an endpoint that nothing scales.
func (s *site) endpoint(t *testing.T, spec client.EndpointSpec) {
	t.Helper()
	spec.WorkersMax = new(0)
	if _, err := s.client.Endpoints().Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

// order is the input of a job; its zero value completes at once.
type order struct {
	Fail  string `json:"fail,omitempty"` // the error
	Text  string `json:"text,omitempty"`
	Hold  bool   `json:"hold,omitempty"`  // run until cancelled or timed out
	Emits int    `json:"emits,omitempty"` // chunks
	Paced bool   `json:"paced,omitempty"` // ten of them in a second
}

// work runs jobs of an endpoint by their orders until the test is over.
func (s *site) work(t *testing.T, endpoint, id string, concurrency int) {
	t.Helper()
	s.workWith(t, endpoint, id, concurrency, func(o order) string { return o.Fail })
}

// workWith is work in which fails decides with which error a job fails, "" for none.
func (s *site) workWith(t *testing.T, endpoint, id string, concurrency int, fails func(order) string) {
	t.Helper()
	cfg := s.bus
	cfg.Endpoint, cfg.ID, cfg.Concurrency, cfg.Version = endpoint, id, concurrency, "1.2.3"
	cfg.Grace = -1
	ready := make(chan struct{})
	cfg.OnReady = func() { close(ready) }
	testenv.Background(t, func(ctx context.Context) error {
		err := worker.Run(ctx, cfg, func(ctx context.Context, j *worker.Job) (any, error) { return obey(ctx, j, fails) })
		if errors.Is(err, worker.ErrStuck) { // it held a job to its end
			return nil
		}
		return err
	})
	select {
	case <-ready:
	case <-time.After(soon):
		t.Fatalf("worker %s is not ready within %v", id, soon)
	}
}

func obey(ctx context.Context, j *worker.Job, fails func(order) string) (any, error) {
	var o order
	if err := json.Unmarshal(j.Input, &o); err != nil {
		return nil, err
	}
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for n := range o.Emits {
		if o.Paced {
			select {
			case <-pace.C:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if err := j.Emit(ctx, n); err != nil {
			return nil, err
		}
	}
	if o.Hold {
		j.Logger().Info("holds " + string(j.ID))
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if text := fails(o); text != "" {
		return nil, errors.New(text)
	}
	return o, nil
}

// run submits a job.
func (s *site) run(t *testing.T, endpoint string, o order, webhook string) job.ID {
	t.Helper()
	j, err := s.client.Run(t.Context(), endpoint, client.Request{Input: o, Webhook: webhook})
	if err != nil {
		t.Fatal(err)
	}
	return j.ID
}

// ended waits until a job is over.
func (s *site) ended(t *testing.T, endpoint string, id job.ID) *client.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	j, err := s.client.Wait(ctx, endpoint, id)
	if err != nil {
		t.Fatalf("job %s: %v", id, err)
	}
	return j
}

// receiver takes webhooks and answers with the status that answer returns.
func receiver(t *testing.T, answer func() int) (url string) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer()) }))
	t.Cleanup(web.Close)
	return web.URL
}

// scoped makes a key with these scopes and returns it.
func (s *site) scoped(t *testing.T, scopes ...string) string {
	t.Helper()
	args := []string{"key", "create", "a-key", "-o", "json"}
	for _, scope := range scopes {
		args = append(args, "--scope", scope)
	}
	var made struct{ Key string }
	program.Decode(t, s.OK(args...), &made)
	return made.Key
}
