package s3

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/worker"
	"flightline/streams"
)

// jobs is a queue with one worker.
type jobs struct {
	q *queue.Queue
	e endpoint.Endpoint
}

func startQueue(t *testing.T, h worker.Handler, allowed ...netip.Prefix) jobs {
	t.Helper()
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	reg, err := registry.New(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := reg.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "ep"})
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.New(t.Context(), b.NC, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, q.Run)
	if err := q.CreateEndpoint(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, func(ctx context.Context) error {
		return worker.Run(ctx, worker.Config{Endpoint: e.ID, NC: b.NC, Grace: -1, S3AllowNetworks: allowed}, h)
	})
	return jobs{q, e}
}

// run submits a job and waits for its outcome.
func (q jobs) run(t *testing.T, size int, s3Config string) *job.Job {
	t.Helper()
	id := queue.NewID(job.Async)
	w, err := q.q.Watch(q.e, id)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r := job.Request{Input: fmt.Appendf(nil, `{"size":%d}`, size), S3Config: json.RawMessage(s3Config)}
	if _, err := q.q.Submit(t.Context(), q.e, id, job.Async, r); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	j, err := w.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return j
}
