package registry

import (
	"context"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/streams"
)

// ForWorker is the part of a Registry that a worker may use.
type ForWorker struct {
	// Endpoints have what endpoint.Endpoint.ForWorkers returns. They can be read
	// one by one only.
	Endpoints *Endpoints
	Workers   *Workers
	Pods      *WorkerPods
}

// NewForWorker binds to the buckets that workers may use. It starts nothing. A
// nil log is silence.
func NewForWorker(ctx context.Context, js jetstream.JetStream, log *slog.Logger) (*ForWorker, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	shown, err := OpenTable[endpoint.Endpoint](ctx, js, streams.BucketWorkerEndpoints)
	if err != nil {
		return nil, err
	}
	workers, err := newWorkers(ctx, js, log)
	if err != nil {
		return nil, err
	}
	pods, err := newWorkerPods(ctx, js, log)
	if err != nil {
		return nil, err
	}
	return &ForWorker{Endpoints: &Endpoints{table: shown, cache: newCache(shown, log)}, Workers: workers, Pods: pods}, nil
}
