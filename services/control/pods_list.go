package control

import (
	"context"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/pod"
	"flightline/shared/web"
)

// includes says what an answer has besides the pod.
type includes struct{ machine, volume, plans, template, workers bool }

// includesOf reads the five parameters; each is false unless it is given.
func includesOf(c *fiber.Ctx) (includes, error) {
	var i includes
	for _, parameter := range []struct {
		name string
		to   *bool
	}{
		{"includeMachine", &i.machine},
		{"includeNetworkVolume", &i.volume},
		{"includeSavingsPlans", &i.plans},
		{"includeTemplate", &i.template},
		{"includeWorkers", &i.workers},
	} {
		var err error
		if *parameter.to, err = boolOf(c, parameter.name); err != nil {
			return i, err
		}
	}
	return i, nil
}

// filter keeps the pods of which each parameter that is given has one of the
// values that it is given with.
type filter []func(pod.Pod) bool

// filterOf reads the parameters of a list. Of an empty value nothing is asked.
func filterOf(c *fiber.Ctx, catalog *pod.Catalog) (filter, error) {
	of := map[string]func(pod.Pod) string{
		"computeType":     computeType,
		"cpuFlavorId":     func(p pod.Pod) string { return flavorOf(p, catalog) },
		"dataCenterId":    func(p pod.Pod) string { place, _ := catalog.Place(p); return place.DataCenterID },
		"desiredStatus":   func(p pod.Pod) string { return string(p.Status) },
		"endpointId":      func(p pod.Pod) string { return p.Endpoint },
		"gpuTypeId":       func(p pod.Pod) string { kind, _ := p.GPUs(); return kind },
		"id":              func(p pod.Pod) string { return p.ID },
		"imageName":       func(p pod.Pod) string { return p.Spec.Image },
		"name":            func(p pod.Pod) string { return p.Name },
		"networkVolumeId": func(p pod.Pod) string { return p.VolumeID },
		"templateId":      func(p pod.Pod) string { return p.TemplateID },
	}
	var f filter
	for name, value := range of {
		var wanted []string
		for _, text := range c.Request().URI().QueryArgs().PeekMulti(name) {
			if len(text) > 0 {
				wanted = append(wanted, string(text))
			}
		}
		if err := checkEnum(name, wanted); err != nil {
			return nil, err
		}
		if len(wanted) > 0 {
			f = append(f, func(p pod.Pod) bool { return slices.Contains(wanted, value(p)) })
		}
	}
	return f, nil
}

func (f filter) keeps(p pod.Pod) bool {
	for _, holds := range f {
		if !holds(p) {
			return false
		}
	}
	return true
}

func checkEnum(name string, given []string) error {
	allowed := map[string][]string{
		"computeType":   {"GPU", "CPU"},
		"desiredStatus": {string(pod.Running), string(pod.Exited), string(pod.Terminated)},
	}[name]
	for _, value := range given {
		if allowed != nil && !slices.Contains(allowed, value) {
			return web.Errorf(web.InvalidRequest, "%s must be %s", name, strings.Join(allowed, " or "))
		}
	}
	return nil
}

func computeType(p pod.Pod) string {
	if _, gpus := p.GPUs(); gpus > 0 {
		return "GPU"
	}
	return "CPU"
}

// listPods shows the pods of no endpoint, and workers if they are asked for.
func (s *Service) listPods(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	wanted, err := includesOf(c)
	if err != nil {
		return err
	}
	keep, err := filterOf(c, s.cfg.Catalog)
	if err != nil {
		return err
	}
	at, err := pageOf(c)
	if err != nil {
		return err
	}
	pods, err := s.registry.Pods.List(ctx)
	if err != nil {
		return err
	}
	show, err := s.shower(ctx, wanted)
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p pod.Pod) bool { return p.Endpoint != "" && !wanted.workers || !keep.keeps(p) })
	views := []podView{}
	for _, p := range cut(c, at, pods, func(p pod.Pod) string { return p.ID }) {
		views = append(views, show(p))
	}
	return c.JSON(views)
}

// shower reads once what the includes need for any number of pods.
func (s *Service) shower(ctx context.Context, wanted includes) (func(pod.Pod) podView, error) {
	now := s.queue.Now()
	pods, err := listed(ctx, wanted.machine || wanted.template, s.registry.Pods.List)
	if err != nil {
		return nil, err
	}
	templates, err := listed(ctx, wanted.template, s.registry.Templates.List)
	if err != nil {
		return nil, err
	}
	volumes, err := listed(ctx, wanted.volume, s.registry.Volumes.List)
	if err != nil {
		return nil, err
	}
	all := tallyOf(pods, now)
	templateOf := templatesByID(templates, all)
	volumeOf := make(map[string]*volumeView, len(volumes))
	for _, v := range volumes {
		volumeOf[v.ID] = new(volumeViewOf(v))
	}
	return func(p pod.Pod) podView {
		view := podViewOf(p, s.cfg.Catalog, now)
		if wanted.machine {
			view.Machine = machineOf(p, all, s.cfg.Catalog)
		}
		if wanted.plans {
			view.SavingsPlans = plansOf(p, s.cfg.Catalog, now)
		}
		view.Template, view.NetworkVolume = templateOf[p.TemplateID], volumeOf[p.VolumeID]
		return view
	}, nil
}

func templatesByID(list []pod.Template, all tally) map[string]*templateView {
	views := make(map[string]*templateView, len(list))
	for _, t := range list {
		views[t.ID] = new(templateViewOf(t, all))
	}
	return views
}

// listed is what list answers, and nothing if it is not wanted.
func listed[T any](ctx context.Context, wanted bool, list func(context.Context) ([]T, error)) ([]T, error) {
	if !wanted {
		return nil, nil
	}
	return list(ctx)
}
