package control

import (
	"cmp"
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/web"
)

// fleetView is the part of an endpoint that says how workers are started. What
// the endpoint does not set is absent.
type fleetView struct {
	ScalerType  string `json:"scalerType"`
	ScalerValue int    `json:"scalerValue"`
	// IdleTimeout is in seconds.
	IdleTimeout int64    `json:"idleTimeout"`
	Driver      string   `json:"driver"`
	TemplateID  string   `json:"templateId,omitempty"`
	ImageName   string   `json:"imageName,omitempty"`
	Command     []string `json:"command,omitempty"`
	// Env has pod.Hidden in place of secrets.
	Env        map[string]string `json:"env"`
	GPUCount   int               `json:"gpuCount,omitempty"`
	VCPUCount  float64           `json:"vcpuCount,omitempty"`
	MemoryInGb float64           `json:"memoryInGb,omitempty"`
	// PausedUntil is there while the endpoint is paused.
	PausedUntil string `json:"pausedUntil,omitempty"`
}

func fleetViewOf(e endpoint.Endpoint, now time.Time) fleetView {
	view := fleetView{
		ScalerType: e.ScalerType, ScalerValue: e.ScalerValue, IdleTimeout: int64(e.IdleTimeout.Seconds()),
		Driver: cmp.Or(e.Fleet.Driver, string(pod.External)), TemplateID: e.Fleet.TemplateID, ImageName: e.Fleet.Image,
		Command: e.Fleet.Command, Env: pod.Redact(e.Env),
		GPUCount: e.Fleet.GPUs, VCPUCount: e.Fleet.VCPUs, MemoryInGb: e.Fleet.MemoryGB,
	}
	if e.Paused(now) {
		view.PausedUntil = web.Stamp(e.PausedUntil)
	}
	return view
}

// endpointShower makes views with what the request includes, and reads once
// what that needs. An endpoint made before there was scaling shows the
// defaults.
func (s *Service) endpointShower(ctx context.Context, c *fiber.Ctx) (func(endpoint.Endpoint) endpointView, error) {
	wanted, err := includesOf(c)
	if err != nil {
		return nil, err
	}
	now := s.queue.Now()
	pods, err := listed(ctx, wanted.workers || wanted.template, s.registry.Pods.List)
	if err != nil {
		return nil, err
	}
	templates, err := listed(ctx, wanted.template, s.registry.Templates.List)
	if err != nil {
		return nil, err
	}
	templateOf := templatesByID(templates, tallyOf(pods, now))
	withWorkers := wanted.workers
	wanted.template = false // each worker has the endpoint's, which is shown beside
	show, err := s.shower(ctx, wanted)
	if err != nil {
		return nil, err
	}
	return func(e endpoint.Endpoint) endpointView {
		if whole, err := e.Complete(); err == nil {
			e = whole
		}
		view := viewOf(e, now)
		if withWorkers {
			workers := workersOf(e.ID, pods, show)
			view.Workers = &workers
		}
		view.Template = templateOf[e.Fleet.TemplateID]
		return view
	}, nil
}

// workersOf are the endpoint's pods but for those that were removed.
func workersOf(id string, pods []pod.Pod, show func(pod.Pod) podView) []podView {
	workers := []podView{}
	for _, p := range pods {
		if p.Endpoint == id && p.Status != pod.Terminated {
			workers = append(workers, show(p))
		}
	}
	return workers
}
