package streaming

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/services/api"
	"flightline/services/recorder"
	"flightline/shared/endpoint"
	eventlog "flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/shared/web"
	"flightline/streams"
)

const (
	toldEndpoint = "told"
	toldKey      = "key-of-the-subscribers"
)

// telling is an API and two recorders on one bus, with the endpoint "told".
type telling struct {
	*testing.T
	bus      *testenv.Server
	queue    *queue.Queue
	endpoint endpoint.Endpoint
	url      string
	// want is the ledger: the events of each attempt, in order.
	want map[string][]string
}

func newTelling(t *testing.T) *telling {
	t.Helper()
	s := &telling{T: t, bus: testenv.NewServer(t), want: map[string][]string{}}
	s.must(streams.Apply(t.Context(), s.bus.JS, streams.Config{}))
	s.must(streams.ApplySubscriber(t.Context(), s.bus.JS))
	reg, err := registry.New(t.Context(), s.bus.JS, nil)
	s.must(err)
	_, err = reg.Keys.Put(t.Context(), toldKey, registry.KeySpec{Scopes: registry.AllScopes()})
	s.must(err)
	s.endpoint, err = reg.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: toldEndpoint, Created: time.Now()})
	s.must(err)
	s.queue, err = queue.New(t.Context(), s.bus.NC, queue.Config{})
	s.must(err)
	s.must(s.queue.CreateEndpoint(t.Context(), s.endpoint))
	log, err := eventlog.New(s.bus.NC, s.bus.JS, nil)
	s.must(err)
	service, err := api.New(api.Config{}, api.Deps{Queue: s.queue, Registry: reg, Events: log})
	s.must(err)
	app := web.New(web.Config{})
	service.Routes(app)
	var listening net.ListenConfig
	listener, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	s.must(err)
	s.url = "http://" + listener.Addr().String()
	for _, run := range []func(context.Context) error{
		reg.Run, s.queue.Run, service.Run, func(ctx context.Context) error { return web.Serve(ctx, app, listener) },
	} {
		s.background(run)
	}
	return s
}

func (s *telling) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// background runs f until the test ends or stop is called. Its error is expected
// where the test closes its connection.
func (s *telling) background(f func(context.Context) error) (stop func()) {
	return testenv.Background(s, func(ctx context.Context) error { _ = f(ctx); return nil })
}

// recorder is active or stands by, and the connection that ends it
// as a crash would.
func (s *telling) recorder(name string) (*registry.Election, *nats.Conn) {
	s.Helper()
	nc := s.bus.Connect(s.T)
	js, err := jetstream.New(nc)
	s.must(err)
	q, err := queue.New(s.Context(), nc, queue.Config{})
	s.must(err)
	log, err := eventlog.New(nc, js, nil)
	s.must(err)
	election, err := registry.NewElection(s.Context(), js, "recorder", name, nil)
	s.must(err)
	service, err := recorder.New(recorder.Config{}, recorder.Deps{Queue: q, Events: log, Election: election})
	s.must(err)
	s.background(q.Run)
	s.background(service.Run)
	return election, nc
}

// play has n jobs live, each in one of four ways, and notes what subscribers
// have to hear.
func (s *telling) play(n int) {
	s.Helper()
	consumer, err := s.queue.Consume(s.Context(), s.endpoint, "w", 1)
	s.must(err)
	defer consumer.Close()
	next := func() *queue.Lease {
		lease, err := consumer.Next(s.Context())
		s.must(err)
		return lease
	}
	for i := range n {
		id := queue.NewID(job.Async)
		_, err := s.queue.Submit(s.Context(), s.endpoint, id, job.Async, job.Request{Input: json.RawMessage(`{}`)})
		s.must(err)
		lease, want := next(), []string{"job.queued 0", "job.started 1"}
		switch i % 4 {
		case 0:
			_, err = lease.Complete(s.Context(), json.RawMessage(`1`))
			want = append(want, "job.completed 1")
		case 1:
			_, err = s.queue.Cancel(s.Context(), s.endpoint, id)
			want = append(want, "job.cancelled 1")
		case 2:
			s.must(lease.Release(s.Context()))
			_, err = next().TimeOut(s.Context())
			want = append(want, "job.started 2", "job.timed_out 2")
		case 3:
			_, err = lease.Fail(s.Context(), "no")
			s.must(err)
			s.want[string(id)+" 1"] = append(want, "job.failed 1")
			_, err = s.queue.Retry(s.Context(), s.endpoint, id, "")
			s.must(err)
			_, err = next().Complete(s.Context(), json.RawMessage(`2`))
			s.want[string(id)+" 2"] = []string{"job.queued 0", "job.started 1", "job.completed 1"}
			s.must(err)
			continue
		}
		s.must(err)
		s.want[fmt.Sprint(id, " 1")] = want
	}
}

// Subscribers that are there from the beginning, that come late, and that stop
// and resume again and again, hear each event of each attempt once and in
// order, while the active recorder is lost and another one takes over.
func TestSubscribersHearEachEventOnceOverAFailoverOfTheRecorder(t *testing.T) {
	t.Parallel()
	s := newTelling(t)
	first, crash := s.recorder("first")
	active := func(who string) func() bool {
		return func() bool {
			leader, err := first.Active(t.Context())
			return err == nil && leader.Instance == who
		}
	}
	s.eventually("the first recorder is active", active("first"))
	second, _ := s.recorder("second")
	first = second // the first one's connection ends soon
	const jobs, perFour = 80, 3 + 3 + 4 + 6
	const all = jobs / 4 * perFour
	ctx, cancel := context.WithTimeout(t.Context(), 3*program.Soon)
	defer cancel()
	results := make([]heard, 4)
	readers := []func(context.Context, int) (heard, error){s.overHTTP, s.bySequence, s.durably}
	var g errgroup.Group
	for i, read := range readers {
		g.Go(func() (err error) { results[i], err = read(ctx, all); return err })
	}
	s.play(jobs / 2)
	crash.Close()
	s.play(jobs / 2)
	s.eventually("the second recorder is active", active("second"))
	g.Go(func() (err error) { results[3], err = s.overHTTP(ctx, all); return err }) // the late one
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	for i, who := range []string{"over HTTP", "by sequence", "durably", "late"} {
		if diff := cmp.Diff(s.want, results[i].list); diff != "" {
			t.Errorf("%s (-want +heard):\n%s", who, diff)
		}
	}
	if got := len(s.want); got != jobs+jobs/4 {
		t.Errorf("got %d attempts in the ledger, want %d", got, jobs+jobs/4)
	}
}

func (s *telling) eventually(what string, holds func() bool) {
	s.Helper()
	testenv.Eventually(s, what, holds)
}
