package api

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// defaultWorkers and maxWorkers bound the workers of one answer.
const defaultWorkers, maxWorkers = 100, 1000

// workers answers which workers live, of the endpoints that the key may read.
func (s *Service) workers(ctx context.Context, c *fiber.Ctx) error {
	limit, err := limitOf(c, defaultWorkers, maxWorkers)
	if err != nil {
		return err
	}
	after, id := c.Query("cursor"), c.Query("id")
	if c.Context().QueryArgs().Has("cursor") && !strings.Contains(after, "/") {
		return web.Errorf(web.InvalidRequest, "cursor is invalid; take it from the answer before")
	}
	of := c.Query("endpoint")
	if c.Context().QueryArgs().Has("endpoint") && of == "" {
		return web.Errorf(web.InvalidRequest, "endpoint is empty; must be the id of an endpoint")
	}
	living, err := s.registry.Workers.List(ctx, of)
	if err != nil {
		return err
	}
	key := web.Caller(c)
	living = slices.DeleteFunc(living, func(w registry.Worker) bool {
		return !key.Allows(w.Endpoint, registry.Read) || id != "" && w.ID != id || after != "" && rankOf(w) <= after
	})
	slices.SortFunc(living, func(a, b registry.Worker) int { return cmp.Compare(rankOf(a), rankOf(b)) })
	v := api.LivingWorkers{Workers: []api.LivingWorker{}}
	if len(living) > limit {
		living = living[:limit]
		v.Cursor = rankOf(living[limit-1])
	}
	if living, err = s.drained(ctx, living); err != nil {
		return err
	}
	pods, err := s.registry.Pods.List(ctx)
	if err != nil {
		return err
	}
	addPods(living, pods)
	startups := api.StartupsOf(pods)
	for _, w := range living {
		view := livingOf(w)
		view.Startup = startups[rankOf(w)]
		v.Workers = append(v.Workers, view)
	}
	return c.JSON(v)
}

// addPods takes from the pods which workers are asked to drain, as their next heartbeats say,
// and when those started whose heartbeats do not say it: those that speak HTTP.
func addPods(living []registry.Worker, pods []pod.Pod) {
	of := map[string]*pod.Pod{}
	for i, p := range pods {
		of[p.Endpoint+"/"+p.ID] = &pods[i]
	}
	for i, w := range living {
		p := of[rankOf(w)]
		if p == nil {
			continue
		}
		if p.Status == pod.Running && !p.Drain.At.IsZero() && p.Drains(w.Started) {
			living[i].Draining = true
		}
		if w.Started.IsZero() {
			living[i].Started = p.Started
		}
	}
}

// rankOf orders the workers of all endpoints.
func rankOf(w registry.Worker) string { return w.Endpoint + "/" + w.ID }

func livingOf(w registry.Worker) api.LivingWorker {
	v := api.LivingWorker{
		ID: w.ID, Endpoint: w.Endpoint, Protocol: "http", State: w.State, Concurrency: w.Concurrency, Running: append([]string{}, w.Running...),
		Draining: w.Draining, StartedAt: api.FormatTime(w.Started), SeenAt: api.FormatTime(w.Seen),
		Host: api.WorkerHost{
			Name: w.Host.Name, OS: w.Host.OS, Arch: w.Host.Arch, CPUModel: w.Host.CPUModel, CPUs: w.Host.CPUs, MemoryBytes: w.Host.MemoryBytes,
			GPUDriver: w.Host.Driver, GPUs: []api.WorkerGPU{}, Version: w.Host.Version,
		},
	}
	if w.Native {
		v.Protocol = "nats"
	}
	for _, g := range w.Host.GPUs {
		v.Host.GPUs = append(v.Host.GPUs, api.WorkerGPU{Name: g.Name, UUID: g.UUID, MemoryBytes: g.MemoryBytes})
	}
	return v
}
