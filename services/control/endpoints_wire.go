package control

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/ratelimit"
	"flightline/shared/web"
)

// endpointBody makes or changes an endpoint.
type endpointBody api.EndpointSpec

// endpoint is what a new endpoint is made from.
func (b *endpointBody) endpoint() (endpoint.Endpoint, error) {
	if blank(b.ID) && blank(b.Name) && blank(b.TemplateID) {
		return endpoint.Endpoint{}, web.Errorf(web.InvalidRequest, "name or id is required, or templateId")
	}
	if err := b.check(); err != nil {
		return endpoint.Endpoint{}, err
	}
	e, err := b.applyTo(endpoint.Endpoint{})
	if err != nil {
		return e, err
	}
	if b.ID != nil {
		e.ID = *b.ID
	}
	if e.ID == "" {
		e.ID = newID()
	}
	return e, nil
}

// check refuses limits of operations that there are not, and models that cannot be. All
// else is checked by endpoint.Complete.
func (b *endpointBody) check() error {
	if b.ModelCache != nil {
		if err := pod.CheckModels(*b.ModelCache); err != nil {
			return err
		}
	}
	if b.Limits == nil {
		return nil
	}
	for _, operation := range slices.Sorted(maps.Keys(*b.Limits)) {
		if !ratelimit.Known(operation) {
			return web.Errorf(web.InvalidRequest, "limits.%s is no operation: must be of %s", operation, strings.Join(ratelimit.Operations(), ", "))
		}
	}
	return nil
}

func blank(given *string) bool { return given == nil || *given == "" }

// applyTo returns e with what the body gives, or an *endpoint.FieldError.
func (b *endpointBody) applyTo(e endpoint.Endpoint) (endpoint.Endpoint, error) {
	set(&e.Name, b.Name)
	setMillis(&e.ExecutionTimeout, positive(b.ExecutionTimeoutMs))
	setMillis(&e.TTL, positive(b.TTLMs))
	setMillis(&e.Lease, positive(b.LeaseMs))
	setMillis(&e.Retention, positive(b.RetentionMs))
	setMillis(&e.SyncRetention, positive(b.SyncRetentionMs))
	set(&e.MaxLost, positive(b.MaxLostWorkers))
	set(&e.MaxQueueBytes, positive(b.MaxQueueBytes))
	set(&e.MaxQueueJobs, positive(b.MaxQueueJobs))
	set(&e.RequestsPerWorker, b.RequestsPerWorker)
	set(&e.FailureBudget, b.FailureBudget)
	if b.Rollout != nil {
		percent, err := endpoint.ParseRollout(*b.Rollout)
		if err != nil {
			return e, err
		}
		e.CanaryPercent = percent
	}
	set(&e.WorkersMin, b.WorkersMin)
	if b.WorkersMax != nil {
		e.WorkersMax, e.NoWorkers = *b.WorkersMax, *b.WorkersMax == 0
	}
	set(&e.StreamFormat, b.StreamFormat)
	set(&e.Limits, b.Limits)
	if b.WebhookRetriesMs != nil {
		e.WebhookRetries = make([]time.Duration, len(*b.WebhookRetriesMs))
		for i := range e.WebhookRetries {
			setMillis(&e.WebhookRetries[i], &(*b.WebhookRetriesMs)[i])
		}
	}
	return b.applyFleetTo(e)
}

// change is applyTo for an endpoint that exists. Another failure budget leaves its moment in
// the record, as a resume does: failures from before do not count for it.
func (b *endpointBody) change(e endpoint.Endpoint, now time.Time) (endpoint.Endpoint, error) {
	changed, err := b.applyTo(e)
	if err == nil && changed.FailureBudget != e.FailureBudget && !e.Paused(now) {
		changed.PausedUntil, changed.PauseReason = now, ""
	}
	return changed, err
}

// positive is what is given of a setting that must be: a 0 is as wrong as what
// is below it, while to an Endpoint it would mean the default.
func positive[T int | int64 | float64](given *T) *T {
	if given != nil && *given == 0 {
		return new(T(-1))
	}
	return given
}

func set[T any](to, given *T) {
	if given != nil {
		*to = *given
	}
}

// setMillis keeps what a Duration cannot hold out of bounds in either direction.
func setMillis(to *time.Duration, given *int64) {
	const far = int64(365 * 24 * time.Hour / time.Millisecond)
	if given != nil {
		*to = time.Duration(min(max(*given, -far), far)) * time.Millisecond
	}
}

// setSeconds is setMillis for seconds.
func setSeconds(to *time.Duration, given *int) {
	if given != nil {
		*to = time.Duration(min(max(*given, -maxSeconds), maxSeconds)) * time.Second
	}
}

// applyFleetTo is applyTo for what starts workers. A value of env that was shown as
// pod.Hidden and comes back stays what it is.
func (b *endpointBody) applyFleetTo(e endpoint.Endpoint) (endpoint.Endpoint, error) {
	set(&e.ScalerType, b.ScalerType)
	set(&e.ScalerValue, positive(b.ScalerValue))
	setSeconds(&e.IdleTimeout, positive(b.IdleTimeout))
	setSeconds(&e.SleepTimeout, b.SleepTimeout)
	if b.SleepGPUShare != nil {
		e.SleepGPUShare = b.SleepGPUShare
	}
	set(&e.Fleet.Driver, b.Driver)
	set(&e.Fleet.TemplateID, b.TemplateID)
	set(&e.Fleet.Image, b.ImageName)
	set(&e.Fleet.Command, b.Command)
	set(&e.Fleet.GPUs, b.GPUCount)
	set(&e.Fleet.VCPUs, b.VCPUCount)
	set(&e.Fleet.MemoryGB, b.MemoryInGb)
	set(&e.Fleet.ModelCache, b.ModelCache)
	set(&e.Fleet.GPUTypes, b.GPUTypeIDs)
	set(&e.Fleet.MinVRAMGB, b.MinVRAMGb)
	set(&e.Fleet.MinCUDA, b.MinCUDAVersion)
	set(&e.Fleet.GPUShare, positive(b.GPUShare))
	if b.GPUCount == nil && e.Fleet.GPUs == 0 && b.describesGPU() {
		e.Fleet.GPUs = 1 // as on RunPod
	}
	set(&e.Fleet.Priority, b.Priority)
	setMillis(&e.Fleet.MinHold, positive(b.MinHoldMs))
	setMillis(&e.Fleet.MaxSwapWait, positive(b.MaxSwapWaitMs))
	if b.Env == nil {
		return e, nil
	}
	env, err := pod.Restore(*b.Env, e.Env)
	if wrong, ok := errors.AsType[*pod.FieldError](err); ok {
		return e, &endpoint.FieldError{Field: wrong.Field, Problem: wrong.Text}
	}
	e.Env = env
	return e, err
}

// describesGPU reports whether the body says what a GPU of a worker must have.
func (b *endpointBody) describesGPU() bool {
	return b.GPUTypeIDs != nil && len(*b.GPUTypeIDs) > 0 || b.MinVRAMGb != nil && *b.MinVRAMGb > 0 ||
		b.MinCUDAVersion != nil && *b.MinCUDAVersion != "" || b.GPUShare != nil
}

// maxSeconds is out of every bound, and a Duration holds it.
const maxSeconds = 1_000_000

func viewOf(e endpoint.Endpoint, now time.Time) api.Endpoint {
	limits := e.Limits
	if limits == nil {
		limits = map[string]endpoint.Limit{}
	}
	var retries []int64
	if e.WebhookRetries != nil {
		retries = make([]int64, len(e.WebhookRetries))
		for i, d := range e.WebhookRetries {
			retries[i] = d.Milliseconds()
		}
	}
	return api.Endpoint{
		ID: e.ID, Name: e.Name, CreatedAt: e.Created, Version: e.Version,
		WorkersMin: e.WorkersMin, WorkersMax: e.WorkersMax,
		ExecutionTimeoutMs: e.ExecutionTimeout.Milliseconds(), TTLMs: e.TTL.Milliseconds(),
		LeaseMs: e.Lease.Milliseconds(), RetentionMs: e.Retention.Milliseconds(),
		SyncRetentionMs: e.SyncRetention.Milliseconds(), MaxLostWorkers: e.MaxLost, MaxQueueBytes: e.QueueBytesLimit(),
		MaxQueueJobs:      e.QueueJobsLimit(),
		RequestsPerWorker: e.RequestsPerWorker, FailureBudget: e.FailureBudget, StreamFormat: e.StreamFormat,
		Limits: limits, Partition: e.Partition, WebhookSecret: e.WebhookSecret, WebhookRetriesMs: retries,
		Fleet: fleetViewOf(e, now),
	}
}

func fleetViewOf(e endpoint.Endpoint, now time.Time) api.Fleet {
	view := api.Fleet{
		ScalerType: e.ScalerType, ScalerValue: e.ScalerValue, IdleTimeout: int(e.IdleTimeout.Seconds()), SleepTimeout: int(e.SleepTimeout.Seconds()), SleepGPUShare: e.SleepGPUShare,
		Driver: cmp.Or(e.Fleet.Driver, string(pod.External)), TemplateID: e.Fleet.TemplateID, ImageName: e.Fleet.Image,
		Command: e.Fleet.Command, Env: pod.Redact(e.Env),
		GPUCount: e.Fleet.GPUs, VCPUCount: e.Fleet.VCPUs, MemoryInGb: e.Fleet.MemoryGB, ModelCache: e.Fleet.ModelCache,
		GPUTypeIDs: e.Fleet.GPUTypes, MinVRAMGb: e.Fleet.MinVRAMGB, MinCUDAVersion: e.Fleet.MinCUDA, GPUShare: e.Fleet.GPUShare,
		Priority: e.Fleet.Priority, MinHoldMs: e.Fleet.MinHold.Milliseconds(), MaxSwapWaitMs: e.Fleet.MaxSwapWait.Milliseconds(),
	}
	if e.CanaryPercent > 0 {
		view.Rollout = endpoint.RolloutText(e.CanaryPercent)
	}
	view.Canary = api.CanaryOf(e.Canary)
	if e.Paused(now) {
		view.PausedUntil, view.PauseReason = api.FormatTime(e.PausedUntil), e.PauseReason
	}
	return view
}

// endpointShower makes views with what the request includes, and reads once
// what that needs.
func (s *Service) endpointShower(ctx context.Context, c *fiber.Ctx) (func(endpoint.Endpoint) api.Endpoint, error) {
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
	templateOf := templatesByID(templates, tallyOf(pods, nil, now))
	withWorkers := wanted.workers
	wanted.template = false // each worker has the endpoint's, which is shown beside
	show, err := s.shower(ctx, wanted)
	if err != nil {
		return nil, err
	}
	return func(e endpoint.Endpoint) api.Endpoint {
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
func workersOf(id string, pods []pod.Pod, show func(pod.Pod) api.Pod) []api.Pod {
	workers := []api.Pod{}
	for _, p := range pods {
		if p.Endpoint == id && p.Status != pod.Terminated {
			workers = append(workers, show(p))
		}
	}
	return workers
}
