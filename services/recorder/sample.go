package recorder

import (
	"context"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/registry"
	"flightline/shared/stats"
)

// counting is what the counts and STATS are made with.
func (s *Service) counting() events.Counting {
	c := events.Counting{Durable: s.queue.Bus().Durable, Each: s.cfg.Counted, Now: s.queue.Now, SaveInterval: s.saveInterval}
	if s.registry != nil {
		c.Sample = s.sample
	}
	return c
}

// sample looks at the living workers of all endpoints.
func (s *Service) sample(ctx context.Context) ([]stats.Sample, error) {
	workers, err := s.registry.Workers.List(ctx, "")
	if err != nil || len(workers) == 0 {
		return nil, err
	}
	endpoints, err := s.registry.Endpoints.Known(ctx)
	if err != nil {
		return nil, err
	}
	return samplesOf(workers, endpoints), nil
}

// samplesOf counts workers by endpoint, and the GPUs of those that hold a job: a worker has
// as many as the endpoint gives to each of its workers.
func samplesOf(workers []registry.Worker, endpoints []endpoint.Endpoint) []stats.Sample {
	gpus := make(map[string]int, len(endpoints))
	for _, e := range endpoints {
		gpus[e.ID] = e.Fleet.GPUs
	}
	var all []stats.Sample
	at := map[string]int{}
	for _, w := range workers {
		each, known := gpus[w.Endpoint]
		if !known {
			continue // its endpoint is being deleted
		}
		i, there := at[w.Endpoint]
		if !there {
			i = len(all)
			at[w.Endpoint], all = i, append(all, stats.Sample{Endpoint: w.Endpoint})
		}
		all[i].Workers++
		if len(w.Running) > 0 {
			all[i].BusyGPUs += each
		}
	}
	return all
}
