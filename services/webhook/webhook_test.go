package webhook

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"flightline/shared/deliveries"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for a fact.
const patience = 2 * time.Minute

// env is a bus with the endpoint "ep", whose webhooks are tried again after
// what schedule says.
type env struct {
	t          testing.TB
	bus        *testenv.Server // nil: a cluster
	js         jetstream.JetStream
	connect    func(testing.TB) *nats.Conn
	replicas   int
	queue      *queue.Queue
	registry   *registry.Registry
	deliveries *deliveries.Store
	endpoint   endpoint.Endpoint
}

func newEnv(t testing.TB, schedule ...time.Duration) *env {
	t.Helper()
	bus := testenv.NewServer(t)
	s := &env{t: t, bus: bus, js: bus.JS, connect: bus.Connect}
	if err := streams.Apply(t.Context(), s.js, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	s.create(endpoint.Endpoint{WebhookRetries: schedule})
	return s
}

// create makes the endpoint "ep", once the streams are there.
func (s *env) create(e endpoint.Endpoint) {
	s.t.Helper()
	s.queue, s.registry = s.process()
	e.ID, e.WebhookSecret, e.Created = "ep", endpoint.NewWebhookSecret(), time.Now()
	var err error
	if s.deliveries, err = deliveries.New(s.queue, nil); err != nil {
		s.t.Fatal(err)
	}
	if s.endpoint, err = s.registry.Endpoints.Create(s.t.Context(), e); err != nil {
		s.t.Fatal(err)
	}
	if err := s.queue.CreateEndpoint(s.t.Context(), s.endpoint); err != nil {
		s.t.Fatal(err)
	}
}

// process is what one process has of its own.
func (s *env) process() (*queue.Queue, *registry.Registry) {
	s.t.Helper()
	nc := s.connect(s.t)
	q, err := queue.New(s.t.Context(), nc, queue.Config{Replicas: s.replicas})
	if err != nil {
		s.t.Fatal(err)
	}
	reg, err := registry.New(s.t.Context(), s.js, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	testenv.Background(s.t, q.Run)
	testenv.Background(s.t, reg.Run)
	return q, reg
}

// lenient lets webhooks go to this machine.
func lenient() Config {
	return Config{AllowHTTP: true, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
}

// serve runs an instance until the test or the function it returns ends it.
func (s *env) serve(cfg Config) (stop func()) {
	s.t.Helper()
	q, reg := s.process()
	service, err := New(cfg, Deps{Queue: q, Registry: reg})
	if err != nil {
		s.t.Fatal(err)
	}
	return testenv.Background(s.t, service.Run)
}

// complete ends a job with the webhook and announces that, as the recorder does.
func (s *env) complete(webhook string) job.ID {
	s.t.Helper()
	id := queue.NewID(job.Async)
	s.submit(id, webhook, json.RawMessage(`{"n":"<1>"}`))
	s.announce(s.cancel(id))
	return id
}

func (s *env) submit(id job.ID, webhook string, input json.RawMessage) {
	s.t.Helper()
	if _, err := s.queue.Submit(s.t.Context(), s.endpoint, id, job.Async, job.Request{Input: input, Webhook: webhook}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *env) announce(j *job.Job) {
	s.t.Helper()
	if err := s.deliveries.Enqueue(s.t.Context(), queue.RecordChange{Job: *j, Partition: s.endpoint.Partition}); err != nil {
		s.t.Fatal(err)
	}
}

// log is what the log of deliveries has of a job, the oldest first.
func (s *env) log(id job.ID) []deliveries.Attempt {
	s.t.Helper()
	list, _, err := s.deliveries.List(s.t.Context(), "ep", deliveries.Query{Job: id, Most: 100})
	if err != nil {
		s.t.Fatal(err)
	}
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list
}

// over waits until the last attempt of a job is no failure that another follows.
func (s *env) over(id job.ID) []deliveries.Attempt {
	s.t.Helper()
	var list []deliveries.Attempt
	testenv.Eventually(s.t, "the end of the deliveries of "+string(id), func() bool {
		list = s.log(id)
		return len(list) > 0 && list[len(list)-1].Outcome != deliveries.Failed
	})
	return list
}

// left is how many messages a stream has.
func (s *env) left(stream string) uint64 {
	s.t.Helper()
	for late := time.Now().Add(patience); ; <-time.After(100 * time.Millisecond) {
		got, err := s.js.Stream(s.t.Context(), stream)
		if err == nil {
			return got.CachedInfo().State.Msgs
		}
		if time.Now().After(late) { // the connection may break on a busy machine, and comes back
			s.t.Fatal(err)
		}
	}
}

// call is one request that a receiver got.
type call struct {
	at     time.Time
	header http.Header
	body   []byte
}

func (c call) job() job.ID {
	var v struct {
		ID job.ID `json:"id"`
	}
	_ = json.Unmarshal(c.body, &v)
	return v.ID
}

// receiver notes what comes and answers as its handler does.
type receiver struct {
	url string
	mu  sync.Mutex
	got []call
}

func receive(t testing.TB, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got = append(r.got, call{at: time.Now(), header: req.Header.Clone(), body: body})
		r.mu.Unlock()
		answer(w, req)
	}))
	t.Cleanup(web.Close)
	r.url = web.URL + "/hook"
	return r
}

func (r *receiver) calls() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]call(nil), r.got...)
}

func answerWith(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// nowhere is an address at which nothing listens: no other process is given that port.
const nowhere = "http://127.0.0.1:1/hook"
