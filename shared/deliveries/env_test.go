package deliveries

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
	"flightline/streams"
)

const soon = 2 * time.Minute

// env is a bus with one endpoint, a running queue, and the store beside it.
type env struct {
	*testenv.Server
	q *queue.Queue
	d *Store
	e endpoint.Endpoint
}

func newEnv(t *testing.T) *env {
	t.Helper()
	return newEnvOn(t, testenv.NewServer(t))
}

// newClusterEnv is an env of three nodes, whose streams have one replica each. Only of
// a cluster it is not certain that a direct get is answered by the leader.
func newClusterEnv(t *testing.T) *env {
	t.Helper()
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	c := testenv.NewCluster(t)
	return newEnvOn(t, &testenv.Server{NC: c.NC, JS: c.JS})
}

func newEnvOn(t *testing.T, server *testenv.Server) *env {
	t.Helper()
	b := backend.On(t, server)
	d, err := New(b.Queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &env{Server: b.Bus, q: b.Queue, d: d, e: b.Endpoint}
}

// store makes another process's store on the same bus.
func (s *env) store(t *testing.T, cfg queue.Config) *Store {
	t.Helper()
	q, err := queue.New(t.Context(), s.Connect(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, q.Run)
	d, err := New(q, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// use has the test go on with another process's store.
func (s *env) use(d *Store) { s.d, s.q = d, d.q }

func (s *env) submit(t *testing.T, change ...func(*job.Request)) job.ID {
	t.Helper()
	r := job.Request{Input: json.RawMessage(`{"n":1}`)}
	for _, c := range change {
		c(&r)
	}
	id := queue.NewID(job.Async)
	if _, err := s.q.Submit(t.Context(), s.e, id, job.Async, r); err != nil {
		t.Fatal(err)
	}
	return id
}

// complete ends the job that waits with an output.
func (s *env) complete(t *testing.T, output json.RawMessage) {
	t.Helper()
	consumer, err := s.q.Consume(t.Context(), s.e, "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	l, err := consumer.Next(ctx)
	if err == nil {
		_, err = l.Complete(ctx, output)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fact is the fact that the recorder reads at the end of a job.
func (s *env) fact(t *testing.T, id job.ID) queue.RecordChange {
	t.Helper()
	j, err := s.q.Status(t.Context(), s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	return queue.RecordChange{Job: *j, Partition: s.e.Partition, ExternalPayload: true}
}

// enqueued reads what Enqueue wrote, with the payloads.
func (s *env) enqueued(t *testing.T, id job.ID) *record.Record {
	t.Helper()
	m, err := s.q.Bus().LeaderLast(t.Context(), streams.Webhooks, streams.WebhookSubject(s.e.ID, id, 1))
	if err != nil {
		t.Fatal(err)
	}
	r, err := record.Decode(record.LocationOf(s.e), id, m)
	if err == nil && r.InputRef != nil {
		r.Input, err = record.LoadPayload(t.Context(), s.q.Bus(), r.InputRef)
	}
	if err == nil && r.OutputRef != nil {
		r.Output, err = record.LoadPayload(t.Context(), s.q.Bus(), r.OutputRef)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}
