package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// podID is the pod that the route names.
func podID(c *fiber.Ctx) (string, error) {
	id := strings.Clone(c.Params("pod"))
	if !pod.ValidID(id) {
		return "", web.Errorf(web.InvalidRequest, "podId must be 1 to 128 letters, digits, '-' or '_', got %.150q", id)
	}
	return id, nil
}

// podOf is the pod that the path names.
func (s *Service) podOf(ctx context.Context, c *fiber.Ctx) (pod.Pod, error) {
	id, err := podID(c)
	if err != nil {
		return pod.Pod{}, err
	}
	return s.registry.Pods.Get(ctx, id)
}

func (s *Service) getPod(ctx context.Context, c *fiber.Ctx) error {
	wanted, err := includesOf(c)
	if err != nil {
		return err
	}
	p, err := s.podOf(ctx, c)
	if err != nil {
		return err
	}
	show, err := s.shower(ctx, wanted)
	if err != nil {
		return err
	}
	return c.JSON(show(p))
}

// createPod writes down what should run; an autoscaler with its driver starts it.
func (s *Service) createPod(ctx context.Context, c *fiber.Ctx) error {
	body, err := bind[podBody](c)
	if err != nil {
		return err
	}
	template, err := named(ctx, body.TemplateID, s.registry.Templates.Get, noTemplate)
	if err != nil {
		return err
	}
	made, err := body.pod(newID(), template)
	if err != nil {
		return err
	}
	now := s.queue.Now().UTC()
	made.Owner, made.Status, made.Created, made.Changed, made.Change = web.Caller(c).ID, pod.Running, now, now, "Created by request"
	if err := whileNamed(ctx, &s.named, body.NetworkVolumeID, s.registry.Volumes.Get, noVolume, func() error { return s.registry.Pods.Create(ctx, made) }); err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(podViewOf(made, s.cfg.Catalog, now))
}

// named gets what a body names, nothing if it names none; an id of nothing is the
// body's fault.
func named[T any](ctx context.Context, id *string, get func(context.Context, string) (T, error), fault string) (T, error) {
	if blank(id) {
		var none T
		return none, nil
	}
	v, err := get(ctx, *id)
	if errors.Is(err, pod.ErrNotFound) {
		return v, web.Errorf(web.InvalidRequest, "%s, got %.50q", fault, *id)
	}
	return v, err
}

// What is wrong with a body that names a template or a volume.
const (
	noTemplate = "templateId is that of no template"
	noVolume   = "networkVolumeId is that of no network volume"
)

// whileNamed writes what names the template or volume of this id, if that exists, and keeps it
// from being deleted meanwhile: a deletion looks for what names it, with the same lock. A
// blank id names nothing.
func whileNamed[T any](ctx context.Context, lock *keyedMutex, id *string, get func(context.Context, string) (T, error), fault string, write func() error) error {
	if blank(id) {
		return write()
	}
	unlock, err := lock.Lock(ctx, *id)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := named(ctx, id, get, fault); err != nil {
		return err
	}
	return write()
}

// updatePod changes what the pod is started from, as of its next start.
func (s *Service) updatePod(ctx context.Context, c *fiber.Ctx) error {
	id, err := podID(c)
	if err != nil {
		return err
	}
	body, err := bind[podBody](c)
	if err != nil {
		return err
	}
	p, err := s.registry.Pods.Update(ctx, id, body.change)
	if err != nil {
		return err
	}
	return c.JSON(podViewOf(p, s.cfg.Catalog, s.queue.Now()))
}

func (s *Service) startPod(ctx context.Context, c *fiber.Ctx) error {
	return s.movePod(ctx, c, pod.Start, "Started by request")
}

// restartPod is start and stop in one: what runs ends, and a new process or
// container starts. A reset is the same, as a start makes a new container.
func (s *Service) restartPod(ctx context.Context, c *fiber.Ctx) error {
	return s.movePod(ctx, c, pod.Restart, "Restarted by request")
}

func (s *Service) stopPod(ctx context.Context, c *fiber.Ctx) error {
	return s.movePod(ctx, c, pod.Stop, "Stopped by request")
}

// movePod says what a pod should be; its driver follows.
func (s *Service) movePod(ctx context.Context, c *fiber.Ctx, by pod.Trigger, change string) error {
	p, err := s.podOf(ctx, c)
	if err != nil {
		return err
	}
	switch {
	case p.Driver == "":
		return web.Errorf(web.PodConflict, "cannot %s this pod: its owner runs it, and no driver of this server", by)
	case p.Endpoint != "" && by != pod.Stop:
		return web.Errorf(web.PodConflict, "cannot %s this pod: the autoscaler starts the workers of an endpoint", by)
	}
	gone := ""
	if by == pod.Restart || by == pod.Start && p.Status != pod.Running {
		if gone, err = s.lostMachine(ctx, p); err != nil {
			return err
		}
	}
	p, err = s.registry.Pods.Move(ctx, p.ID, by, change, s.queue.Now(), func(p *pod.Pod) error {
		if gone != "" && p.MachineID == gone {
			p.MachineID, p.Machine, p.PublicIP, p.PortMappings = "", pod.Machine{}, "", nil
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.JSON(podViewOf(p, s.cfg.Catalog, s.queue.Now()))
}

// lostMachine is the id of the pod's machine if none of that id runs pods now,
// else "".
func (s *Service) lostMachine(ctx context.Context, p pod.Pod) (string, error) {
	machines, err := s.registry.Instances.Machines(ctx)
	if err != nil || slices.Contains(machines[p.Driver], p.MachineID) {
		return "", err
	}
	return p.MachineID, nil
}

// deletePod makes the pod TERMINATED; its driver ends it. A worker that its
// owner runs loses its token, so that it gets no more jobs.
func (s *Service) deletePod(ctx context.Context, c *fiber.Ctx) error {
	p, err := s.podOf(ctx, c)
	if err != nil {
		return err
	}
	if err := s.revokeOwnersToken(ctx, p); err != nil {
		return err
	}
	_, err = s.registry.Pods.At(p.Endpoint).Move(ctx, p.ID, pod.Remove, "Deleted by request", s.queue.Now(), nil)
	return noContent(c, err)
}

// revokeOwnersToken takes the token of a worker that no driver stops. A worker over
// NATS cannot be kept out: while it lives, so does its pod.
func (s *Service) revokeOwnersToken(ctx context.Context, p pod.Pod) error {
	if p.Endpoint == "" || p.Driver != "" || p.Status == pod.Terminated || p.Locked {
		return nil
	}
	err := s.registry.Tokens.Revoke(ctx, p.Endpoint, p.ID)
	if !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	living, err := s.living(ctx, p.Endpoint)
	if err != nil {
		return err
	}
	if _, lives := living[p.ID]; lives {
		return web.Errorf(web.PodConflict, "cannot remove this pod: its owner runs the worker; drain it, or stop it there")
	}
	return nil
}

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
		if *parameter.to, err = web.QueryBool(c, parameter.name); err != nil {
			return i, err
		}
	}
	return i, nil
}

// filter keeps the pods of which each parameter that is given has one of the
// values that it is given with.
type filter []func(pod.Pod) bool

// filterOf reads the parameters of a list. Of an empty value nothing is asked.
// Pods that are TERMINATED are kept only for a status or an id that names them.
func filterOf(c *fiber.Ctx, catalog *pod.Catalog) (filter, error) {
	of := map[string]func(pod.Pod) []string{
		"computeType":     one(computeType),
		"cpuFlavorId":     one(func(p pod.Pod) string { return flavorOf(p, catalog) }),
		"dataCenterId":    one(func(p pod.Pod) string { place, _ := catalog.Place(p); return place.DataCenterID }),
		"desiredStatus":   one(func(p pod.Pod) string { return string(p.Status) }),
		"endpointId":      one(func(p pod.Pod) string { return p.Endpoint }),
		"gpuTypeId":       gpuTypesOf,
		"id":              one(func(p pod.Pod) string { return p.ID }),
		"imageName":       one(func(p pod.Pod) string { return p.Spec.Image }),
		"name":            one(func(p pod.Pod) string { return p.Name }),
		"networkVolumeId": one(func(p pod.Pod) string { return p.VolumeID }),
		"templateId":      one(func(p pod.Pod) string { return p.TemplateID }),
	}
	var f filter
	given := map[string]bool{}
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
			given[name] = true
			f = append(f, func(p pod.Pod) bool {
				return slices.ContainsFunc(value(p), func(v string) bool { return slices.Contains(wanted, v) })
			})
		}
	}
	if !given["desiredStatus"] && !given["id"] {
		f = append(f, func(p pod.Pod) bool { return p.Status != pod.Terminated })
	}
	return f, nil
}

// one makes a list of a value.
func one(value func(pod.Pod) string) func(pod.Pod) []string {
	return func(p pod.Pod) []string { return []string{value(p)} }
}

// gpuTypesOf are the kind of GPU that the pod has and those that it asked for.
func gpuTypesOf(p pod.Pod) []string {
	kind, _ := p.GPUs()
	return append([]string{kind}, p.Spec.GPUTypes...)
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
			return web.Errorf(web.InvalidRequest, "%s must be %s, got %.50q", name, strings.Join(allowed, " or "), value)
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
func (s *Service) listPods(ctx context.Context, c *fiber.Ctx) error {
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
	return answerList(c, cut(c, at, pods, func(p pod.Pod) string { return p.ID }), show)
}

// shower reads once what the includes need for any number of pods.
func (s *Service) shower(ctx context.Context, wanted includes) (func(pod.Pod) api.Pod, error) {
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
	claims, err := listed(ctx, wanted.machine, s.registry.GPUs.Claims)
	if err != nil {
		return nil, err
	}
	all := tallyOf(pods, claims, now)
	templateOf := templatesByID(templates, all)
	volumeOf := make(map[string]*api.Volume, len(volumes))
	for _, v := range volumes {
		volumeOf[v.ID] = new(volumeViewOf(v))
	}
	return func(p pod.Pod) api.Pod {
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

func templatesByID(list []pod.Template, all tally) map[string]*api.Template {
	views := make(map[string]*api.Template, len(list))
	for _, t := range list {
		views[t.ID] = new(templateViewOf(t, all))
	}
	return views
}

// listed is what list answers, and nothing if it is not wanted.
func listed[T any](ctx context.Context, wanted bool, list func(context.Context) (T, error)) (all T, err error) {
	if !wanted {
		return all, nil
	}
	return list(ctx)
}

// tally is what all pods together have, counted once for any number of views.
type tally struct {
	gpus map[string]int           // that running pods have, by machine
	ran  map[string]time.Duration // since their last start, by template
}

// tallyOf counts what the pods have and had: a pod that runs has its GPUs, and has run
// until now. A GPU that several pods share is had once, as their claims say; a pod without
// claims has as many as it was made with, or as its owner says. claims may be nil where
// free is not asked for.
func tallyOf(pods []pod.Pod, claims map[string]registry.GPUClaims, now time.Time) tally {
	t := tally{gpus: map[string]int{}, ran: map[string]time.Duration{}}
	claimed := map[string]bool{} // pods
	for _, c := range claims {
		for _, h := range c.Holders {
			claimed[h.Pod] = true
		}
		if c.Used() > 0 {
			t.gpus[c.Holders[0].Machine]++
		}
	}
	for _, p := range pods {
		end := p.Changed
		if p.Status == pod.Running {
			if !claimed[p.ID] {
				t.gpus[p.MachineID] += ownGPUs(p)
			}
			end = now
		}
		if !p.Started.IsZero() {
			t.ran[p.TemplateID] += max(0, end.Sub(p.Started))
		}
	}
	return t
}

// ownGPUs is how many GPUs a pod has that has claimed none.
func ownGPUs(p pod.Pod) int {
	if p.Driver == pod.Process { // it sees all of its machine's, and others may have them
		return p.Spec.GPUs
	}
	_, gpus := p.GPUs()
	return gpus
}

// free is how many GPUs of the pod's machine no running pod has, nil for a
// machine without an id: nobody knows who else is there.
func (t tally) free(p pod.Pod) *int {
	if p.MachineID == "" {
		return nil
	}
	free := max(0, len(p.Machine.GPUs)-t.gpus[p.MachineID])
	return &free
}
