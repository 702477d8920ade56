package client

import (
	"context"
	"net/http"

	"flightline/shared/api"
)

// Workers manages the workers of an endpoint: those that speak HTTP, as RunPod's
// do, are let in, and all are listed and drained. Each call needs a key with the
// control permission.
type Workers struct{ c *Client }

// Workers returns the calls that manage workers.
func (c *Client) Workers() Workers { return Workers{c} }

// Worker is a worker that was let in with a token of its own, or that lives and
// speaks NATS.
type Worker = api.Worker

// Create lets a worker in. The server makes an id up if it is "". A worker of
// this id that there is gets a new token, and drains no longer.
func (w Workers) Create(ctx context.Context, endpoint, id string) (*Worker, error) {
	return w.one(ctx, call{method: http.MethodPost, path: v1("endpoints", endpoint, "workers"), body: api.WorkerSpec{ID: orAbsent(id)}})
}

// List returns the endpoint's workers.
func (w Workers) List(ctx context.Context, endpoint string) ([]Worker, error) {
	var list []Worker
	err := w.c.do(ctx, call{method: http.MethodGet, path: v1("endpoints", endpoint, "workers")}, &list)
	return list, err
}

// Drain ends the handing out of jobs to a worker; those that it has go on. A
// worker that speaks NATS leaves once it runs none; stop another one then.
func (w Workers) Drain(ctx context.Context, endpoint, id string) (*Worker, error) {
	return w.one(ctx, call{method: http.MethodPost, path: v1("endpoints", endpoint, "workers", id, "drain")})
}

// Revoke revokes the worker's token.
func (w Workers) Revoke(ctx context.Context, endpoint, id string) error {
	return w.c.do(ctx, call{method: http.MethodDelete, path: v1("endpoints", endpoint, "workers", id)}, nil)
}

func (w Workers) one(ctx context.Context, op call) (*Worker, error) {
	var got Worker
	if err := w.c.do(ctx, op, &got); err != nil {
		return nil, err
	}
	return &got, nil
}
