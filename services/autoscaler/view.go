package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// backgroundAge is how old the machines and templates may be that a decision
// goes by. Each reading costs the server a consumer.
const backgroundAge = 2 * time.Second

// background is what changes seldom.
type background struct {
	machines  map[pod.Driver][]string
	listed    time.Time
	templates map[string]pod.Template
	read      time.Time
}

// view is everything that is the same for all endpoints at one look.
type view struct {
	now       time.Time
	endpoints []endpoint.Endpoint
	pods      []pod.Pod
	workers   map[string]registry.Worker // by id of endpoint and pod
	machines  map[pod.Driver][]string
	templates map[string]pod.Template
	// drains are the pods that were asked to drain, as workers are.
	drains map[string]pod.Pod
	// fleets are the pods, and visitors the workers, by endpoint.
	fleets   map[string][]pod.Pod
	visitors map[string][]registry.Worker
}

func (v *view) worker(p pod.Pod) (registry.Worker, bool) {
	w, ok := v.workers[p.Endpoint+"."+p.ID]
	return w, ok
}

// unwell reports whether a worker of a fleet says that it is unhealthy.
func (v *view) unwell() bool {
	return slices.ContainsFunc(v.pods, func(p pod.Pod) bool {
		if p.Status != pod.Running || !fleet(p) {
			return false
		}
		w, _ := v.worker(p)
		return w.State == registry.WorkerUnhealthy
	})
}

// fleet reports whether autoscalers start and stop the pod as a worker.
func fleet(p pod.Pod) bool { return p.Endpoint != "" && p.Driver != "" && p.Driver != pod.External }

// look reads what is the same for all endpoints.
func (l *leader) look(ctx context.Context) (*view, error) {
	v := &view{
		now: l.queue.Now(), workers: map[string]registry.Worker{}, drains: map[string]pod.Pod{},
		fleets: map[string][]pod.Pod{}, visitors: map[string][]registry.Worker{},
	}
	var workers []registry.Worker
	var errs [3]error
	v.endpoints, errs[0] = l.registry.Endpoints.Known(ctx)
	v.pods, errs[1] = l.registry.Pods.List(ctx)
	workers, errs[2] = l.registry.Workers.List(ctx, "")
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for _, p := range v.pods {
		if !p.Drain.At.IsZero() {
			v.drains[p.Endpoint+"."+p.ID] = p
		}
		if fleet(p) {
			v.fleets[p.Endpoint] = append(v.fleets[p.Endpoint], p)
		}
	}
	for _, w := range workers {
		v.workers[w.Endpoint+"."+w.ID] = w
		v.visitors[w.Endpoint] = append(v.visitors[w.Endpoint], w)
	}
	return v, l.recall(ctx, v)
}

// recall adds the machines and the templates.
func (l *leader) recall(ctx context.Context, v *view) error {
	known, templates := &l.known, false
	stale := v.now.Sub(known.listed) >= backgroundAge
	for _, e := range v.endpoints {
		templates = templates || e.Fleet.TemplateID != ""
		stale = stale || !external(e) && len(known.machines[pod.Driver(e.Fleet.Driver)]) == 0
	}
	if stale {
		machines, err := l.registry.Instances.Machines(ctx)
		if err != nil {
			return err
		}
		known.machines, known.listed = machines, v.now
	}
	if templates && v.now.Sub(known.read) >= backgroundAge {
		list, err := l.registry.Templates.List(ctx)
		if err != nil {
			return err
		}
		known.templates, known.read = map[string]pod.Template{}, v.now
		for _, t := range list {
			known.templates[t.ID] = t
		}
	}
	v.machines, v.templates = known.machines, known.templates
	return nil
}

// specOf is what the endpoint's workers are started from. invalid says why
// none can be, unknown that it could not be read.
func (l *leader) specOf(ctx context.Context, v *view, e endpoint.Endpoint) (spec pod.Spec, invalid, unknown string) {
	var template pod.Template
	if id := e.Fleet.TemplateID; id != "" {
		var found bool
		if template, found = v.templates[id]; !found { // it may have been made a moment ago
			var err error
			template, err = l.registry.Templates.Get(ctx, id)
			switch {
			case errors.Is(err, pod.ErrNotFound):
				invalid = fmt.Sprintf("the template %s is not there", id)
			case err != nil:
				return spec, "", "its template could not be read"
			}
		}
	}
	spec = specOf(e, template.Spec)
	if invalid == "" {
		invalid = runnable(pod.Driver(e.Fleet.Driver), spec)
	}
	return spec, invalid, ""
}
