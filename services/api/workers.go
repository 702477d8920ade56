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
	pods, err := s.registry.Pods.Known(ctx)
	if err != nil {
		return err
	}
	for _, w := range living {
		v.Workers = append(v.Workers, livingOf(w, pods.Find(w.Endpoint, w.ID)))
	}
	return c.JSON(v)
}

// rankOf orders the workers of all endpoints.
func rankOf(w registry.Worker) string { return w.Endpoint + "/" + w.ID }

// livingOf is what a worker's heartbeat says, and what the record of its pod adds: its
// machine and GPUs; that it is asked to drain, before its next heartbeat says so; and its
// start, if it speaks HTTP. A worker without a record has a zero pod.
func livingOf(w registry.Worker, p pod.Pod) api.LivingWorker {
	if w.Started.IsZero() {
		w.Started = p.Started
	}
	v := api.LivingWorker{
		ID: w.ID, Endpoint: w.Endpoint, Protocol: "http", State: w.State, Concurrency: w.Concurrency, Running: append([]string{}, w.Running...),
		Draining:  w.Draining || p.Status == pod.Running && !p.Drain.At.IsZero() && p.Drains(w.Started),
		StartedAt: api.FormatTime(w.Started), SeenAt: api.FormatTime(w.Seen), Startup: api.StartupOf(p),
		Host: api.WorkerHost{
			Name: cmp.Or(w.Host.Name, p.Machine.Hostname), OS: cmp.Or(w.Host.OS, p.Machine.OS), Arch: cmp.Or(w.Host.Arch, p.Machine.Arch),
			CPUModel: p.Machine.CPU.Model, CPUs: cmp.Or(w.Host.CPUs, p.Machine.CPU.Threads), MemoryBytes: gigabytes(p.Machine.MemoryGB),
			GPUDriver: p.Machine.GPUDriver, GPUs: []api.WorkerGPU{}, Version: w.Host.Version,
		},
	}
	if w.Native {
		v.Protocol = "nats"
	}
	for _, g := range p.OwnGPUs() {
		v.Host.GPUs = append(v.Host.GPUs, api.WorkerGPU{Name: g.Name, UUID: g.UUID, MemoryBytes: gigabytes(g.MemoryGB)})
	}
	return v
}

// gigabytes is n times 2^30 bytes.
func gigabytes(n float64) uint64 { return uint64(n * (1 << 30)) }
