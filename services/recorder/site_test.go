package recorder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"flightline/shared/bus/bustest"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for a fact.
const patience = 30 * time.Second

// site is a bus with the endpoint "ep", whose jobs are kept for a second.
type site struct {
	*bustest.Bus
	e endpoint.Endpoint
	q *queue.Queue // of the clients and the worker

	mu sync.Mutex
	// want is the ledger, written from what callers were told: the events of
	// each attempt, in order, by the attempt's part of their subjects.
	want   map[string][]string
	totals events.Totals
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Bus: bustest.New(t), want: map[string][]string{}}
	if err := streams.Apply(t.Context(), s.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	e, err := endpoint.Endpoint{ID: "ep", Retention: time.Second, SyncRetention: time.Second}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	s.e = e
	s.q = s.queue(t, s.Connect(t), queue.Config{})
	if err := s.q.CreateEndpoint(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return s
}

// queue makes a process's queue, which removes records at once when they may go.
func (s *site) queue(t *testing.T, nc *nats.Conn, cfg queue.Config) *queue.Queue {
	t.Helper()
	cfg.ForgetGrace = time.Millisecond
	q, err := queue.New(t.Context(), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	background(t, q.Run)
	return q
}

// background runs f until the test ends or stop is called.
func background(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// recorder is a process of its own. alone leaves out the election.
type process struct {
	*Service
	nc   *nats.Conn
	stop func()
}

func (s *site) recorder(t *testing.T, name string, point func(*process, Point)) *process {
	t.Helper()
	p := &process{nc: s.Connect(t)}
	js, err := jetstream.New(p.nc)
	if err != nil {
		t.Fatal(err)
	}
	log, err := events.New(p.nc, js, nil)
	if err != nil {
		t.Fatal(err)
	}
	deps := Deps{Queue: s.queue(t, p.nc, queue.Config{}), Events: log}
	if name != "" {
		if deps.Election, err = registry.NewElection(t.Context(), js, "recorder", name, nil); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{}
	if point != nil {
		cfg.Point = func(at Point) { point(p, at) }
	}
	if p.Service, err = New(cfg, deps); err != nil {
		t.Fatal(err)
	}
	p.stop = background(t, p.Run)
	return p
}

// kill is as a crash: nothing more reaches the server.
func (p *process) kill() { p.nc.Close() }

// note writes into the ledger what happened to an attempt.
func (s *site) note(id job.ID, attempt int, steps ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprintf("%s.%d", id, attempt)
	s.want[key] = append(s.want[key], steps...)
	if attempt > 1 {
		s.totals.Retried++
	}
	for _, step := range steps {
		kind, run, _ := strings.Cut(step, " ")
		switch events.Kind(kind) {
		case events.Completed:
			s.totals.Completed++
		case events.Failed:
			s.totals.Failed++
		case events.Cancelled:
			s.totals.Cancelled++
		case events.TimedOut:
			s.totals.TimedOut++
		case events.Started:
			if run != "1" {
				s.totals.Retried++
			}
		case events.Queued:
		}
	}
}

// play has n jobs live all kinds of lives.
func (s *site) play(t *testing.T, n int) {
	t.Helper()
	taker, err := s.q.Take(t.Context(), s.e, "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer taker.Close()
	for i := range n {
		s.playOne(t, taker, i%len(lives))
	}
}

type player struct {
	*site
	t     *testing.T
	taker *queue.Taker
}

var big = json.RawMessage(`"` + strings.Repeat("x", 300<<10) + `"`)

// lives are what may happen, with what the ledger has to say about it.
var lives = []func(p player, id job.ID){
	func(p player, id job.ID) {
		p.must(p.next().Complete(p.t.Context(), json.RawMessage(`1`)))
		p.note(id, 1, "queued 0", "started 1", "completed 1")
	},
	func(p player, id job.ID) {
		p.must(p.next().Fail(p.t.Context(), "no"))
		p.note(id, 1, "queued 0", "started 1", "failed 1")
	},
	func(p player, id job.ID) {
		p.must(p.q.Cancel(p.t.Context(), p.e, id))
		p.note(id, 1, "queued 0", "cancelled 0")
	},
	func(p player, id job.ID) {
		p.next()
		p.must(p.q.Cancel(p.t.Context(), p.e, id))
		p.note(id, 1, "queued 0", "started 1", "cancelled 1")
	},
	func(p player, id job.ID) {
		p.must(p.next().TimeOut(p.t.Context()))
		p.note(id, 1, "queued 0", "started 1", "timed_out 1")
	},
	func(p player, id job.ID) {
		p.must(p.next().Fail(p.t.Context(), "no"))
		p.must(p.q.Retry(p.t.Context(), p.e, id))
		p.must(p.next().Complete(p.t.Context(), big))
		p.note(id, 1, "queued 0", "started 1", "failed 1")
		p.note(id, 2, "queued 0", "started 1", "completed 1")
	},
	func(p player, id job.ID) {
		for range 2 {
			if err := p.next().GiveBack(p.t.Context()); err != nil {
				p.t.Fatal(err)
			}
		}
		lease := p.next()
		if err := lease.Emit(p.t.Context(), json.RawMessage(`{"output":1}`)); err != nil {
			p.t.Fatal(err)
		}
		p.must(lease.Complete(p.t.Context(), big))
		p.note(id, 1, "queued 0", "started 1", "started 2", "started 3", "completed 3")
	},
}

func (p player) must(_ *job.Job, err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p player) next() *queue.Lease {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	l, err := p.taker.Next(ctx)
	if err != nil {
		p.t.Fatalf("no job to take: %v", err)
	}
	return l
}

func (s *site) playOne(t *testing.T, taker *queue.Taker, life int) {
	t.Helper()
	id := queue.NewID(job.Async)
	r := job.Request{Input: json.RawMessage(`{"n":` + string(big) + `}`)}
	if life == 0 {
		r.Webhook = "https://example.test/"
	}
	if _, err := s.q.Submit(t.Context(), s.e, id, job.Async, r); err != nil {
		t.Fatal(err)
	}
	lives[life](player{s, t, taker}, id)
}

// told reads the whole log: the events of each attempt in their order.
func (s *site) told(t *testing.T) map[string][]string {
	t.Helper()
	log, err := events.New(s.NC, s.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.JS.Stream(t.Context(), streams.Events)
	if err != nil {
		return nil // the server is away
	}
	last := info.CachedInfo().State.LastSeq
	got := map[string][]string{}
	enough := errors.New("enough")
	if last == 0 {
		return got
	}
	err = log.Follow(t.Context(), 0, func(e events.Event) error {
		key := fmt.Sprintf("%s.%d", e.Job, e.Attempt)
		got[key] = append(got[key], fmt.Sprintf("%s %d", e.Kind, e.Run))
		if e.Seq == last {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	return got
}

// audit waits until the log says what the ledger says, and checks the counts
// and that retention left nothing on the disk.
func (s *site) audit(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eventually(t, "all events are told", func() string { return cmp.Diff(s.want, s.told(t)) })
	log, err := events.New(s.NC, s.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "all is counted", func() string {
		got, err := log.Totals(t.Context(), s.e.ID)
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(s.totals, got)
	})
	s.eventually(t, "retention leaves nothing on the disk", func() string { return s.left(t) })
	if diff := cmp.Diff(s.want, s.told(t)); diff != "" {
		t.Errorf("the log has changed since:\n%s", diff)
	}
}

// left says what lies in the streams of jobs.
func (s *site) left(t *testing.T) string {
	t.Helper()
	var left []string
	for _, name := range []string{streams.Jobs(s.e.ID), streams.Records(0), streams.Output(0)} {
		stream, err := s.JS.Stream(t.Context(), name)
		if err != nil {
			return err.Error()
		}
		if n := stream.CachedInfo().State.Msgs; n > 0 {
			left = append(left, fmt.Sprintf("%d in %s", n, name))
		}
	}
	stream, err := s.JS.Stream(t.Context(), streams.Payloads(0))
	if err != nil {
		return err.Error()
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(streams.AnyPayload(0, s.e.ID, "*")))
	if err != nil {
		return err.Error()
	}
	for _, subject := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		if !strings.Contains(subject, "hook") {
			left = append(left, subject)
		}
	}
	return strings.Join(left, ", ")
}

// eventually waits until wrong says nothing.
func (s *site) eventually(t *testing.T, what string, wrong func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		problem := wrong()
		if problem == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s: %s", what, problem)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
