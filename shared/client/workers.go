package client

import (
	"context"

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

// LivingWorker is a worker as its last heartbeat shows it.
type LivingWorker = api.LivingWorker

// LivingWorkers is a page of them.
type LivingWorkers = api.LivingWorkers

// LivingQuery says which workers to list; its zero value means the first page of all.
type LivingQuery struct {
	// Endpoint and ID narrow the list. "" means all.
	Endpoint, ID string
	// Limit is 1 to 1000; 0 leaves it to the server, which takes 100.
	Limit int
	// Cursor is that of the page before.
	Cursor string
}

// Living lists the workers that live, of the endpoints that the key may read, by endpoint
// and id. Other than the rest it needs the read permission.
func (w Workers) Living(ctx context.Context, q LivingQuery) (*LivingWorkers, error) {
	query := queryOf(map[string]string{"endpoint": q.Endpoint, "id": q.ID, "cursor": q.Cursor, "limit": countText(q.Limit)})
	return one[LivingWorkers](ctx, w.c, get(v1("workers"), query))
}

// Create lets a worker in. The server makes an id up if it is "". A worker of
// this id that there is gets a new token, and drains no longer.
func (w Workers) Create(ctx context.Context, endpoint, id string) (*Worker, error) {
	return one[Worker](ctx, w.c, post(v1("endpoints", endpoint, "workers"), api.WorkerSpec{ID: orAbsent(id)}))
}

// List returns the endpoint's workers.
func (w Workers) List(ctx context.Context, endpoint string) ([]Worker, error) {
	return value[[]Worker](ctx, w.c, get(v1("endpoints", endpoint, "workers"), nil))
}

// Drain ends the handing out of jobs to a worker; those that it has go on. A
// worker that speaks NATS leaves once it runs none; stop another one then.
func (w Workers) Drain(ctx context.Context, endpoint, id string) (*Worker, error) {
	return one[Worker](ctx, w.c, post(v1("endpoints", endpoint, "workers", id, "drain"), nil))
}

// Revoke revokes the worker's token.
func (w Workers) Revoke(ctx context.Context, endpoint, id string) error {
	return w.c.do(ctx, remove(v1("endpoints", endpoint, "workers", id)), nil)
}
