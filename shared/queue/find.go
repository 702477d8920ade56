package queue

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// maxConcurrentFinds bounds the queues that one Find looks into side by side.
const maxConcurrentFinds = 16

// Find returns a job whose endpoint is not known, without output, if it is of one of
// these endpoints. It looks into the records of each partition, and if the job has none,
// into the queue of each endpoint: its cost grows with the endpoints, and is the same
// among ten jobs and a million. It returns job.ErrNotFound as Current does, and
// bus.ErrUnavailable. Any replica may answer at first, so a job of the last moment may
// be missing.
func (l *Lists) Find(ctx context.Context, endpoints []endpoint.Endpoint, id job.ID) (*job.Job, error) {
	if !id.Valid() {
		return nil, job.ErrNotFound
	}
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	// A job that is taken from its queue in between has a record by then.
	for _, look := range []func(context.Context, []endpoint.Endpoint, job.ID) ([]string, error){l.q.read.withRecord, l.q.read.withMessage, l.q.read.withRecord} {
		there, err := look(ctx, endpoints, id)
		if err != nil {
			return nil, err
		}
		for _, e := range endpoints {
			if !slices.Contains(there, e.ID) {
				continue
			}
			r, err := l.q.Current(ctx, e, id)
			if err == nil {
				return &r.Job, nil
			}
			if !errors.Is(err, job.ErrNotFound) {
				return nil, err
			}
		}
	}
	return nil, job.ErrNotFound
}

// withRecord are the ids of endpoints that have a record of the job, others than those
// asked for among them.
func (rd reader) withRecord(ctx context.Context, endpoints []endpoint.Endpoint, id job.ID) (there []string, err error) {
	asked := map[int]bool{}
	for _, e := range endpoints {
		if asked[e.Partition] {
			continue
		}
		asked[e.Partition] = true
		got, err := rd.bus.LastOf(ctx, streams.Records(e.Partition), []string{streams.AnyAttempt(e.Partition, streams.AnyEndpoint, id)})
		if err != nil {
			return nil, err
		}
		for _, m := range got {
			of, _, _, err := streams.ParseRecord(bus.SubjectOf(m))
			if err != nil {
				return nil, err
			}
			there = append(there, of)
		}
	}
	return there, nil
}

// withMessage are the ids of the endpoints that have a queue message of the job.
func (rd reader) withMessage(ctx context.Context, endpoints []endpoint.Endpoint, id job.ID) ([]string, error) {
	var there []string
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxConcurrentFinds)
	var mu sync.Mutex
	for _, e := range endpoints {
		g.Go(func() error {
			got, err := rd.bus.LastOf(ctx, streams.Jobs(e.ID), []string{streams.AnyClass(e.ID, id)})
			if err == nil && len(got) > 0 {
				mu.Lock()
				defer mu.Unlock()
				there = append(there, e.ID)
			}
			return err
		})
	}
	err := g.Wait()
	return there, err
}
