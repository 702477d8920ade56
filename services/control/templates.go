package control

import (
	"context"
	"errors"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// templateBody makes or changes a template.
type templateBody api.TemplateSpec

func (b *templateBody) applyTo(t pod.Template) (pod.Template, error) {
	var err error
	set(&t.Name, b.Name)
	set(&t.Serverless, b.IsServerless)
	set(&t.Category, b.Category)
	set(&t.Readme, b.Readme)
	if t.Spec, err = (*specBody)(&b.Spec).applyTo(t.Spec); err != nil {
		return t, err
	}
	return t, t.Check()
}

func (s *Service) createTemplate(ctx context.Context, c *fiber.Ctx) error {
	body, err := bind[templateBody](c)
	if err != nil {
		return err
	}
	made, err := body.applyTo(pod.Template{ID: newID(), Created: s.queue.Now().UTC()})
	if err != nil {
		return err
	}
	if err := s.registry.Templates.Create(ctx, made.ID, made); err != nil {
		return err
	}
	return s.answerTemplate(ctx, c, made)
}

func (s *Service) answerTemplate(ctx context.Context, c *fiber.Ctx, t pod.Template) error {
	pods, err := s.registry.Pods.List(ctx)
	if err != nil {
		return err
	}
	return c.JSON(templateViewOf(t, tallyOf(pods, nil, s.queue.Now())))
}

func (s *Service) listTemplates(ctx context.Context, c *fiber.Ctx) error {
	at, err := pageOf(c)
	if err != nil {
		return err
	}
	list, err := s.registry.Templates.List(ctx)
	if err != nil {
		return err
	}
	pods, err := s.registry.Pods.List(ctx)
	if err != nil {
		return err
	}
	list = cut(c, at, list, func(t pod.Template) string { return t.ID })
	all := tallyOf(pods, nil, s.queue.Now())
	return answerList(c, list, func(t pod.Template) api.Template { return templateViewOf(t, all) })
}

func (s *Service) getTemplate(ctx context.Context, c *fiber.Ctx) error {
	t, err := s.registry.Templates.Get(ctx, c.Params("id"))
	if err != nil {
		return noThing(err, "template")
	}
	return s.answerTemplate(ctx, c, t)
}

// updateTemplate changes what is started from it next; pods keep what they have.
func (s *Service) updateTemplate(ctx context.Context, c *fiber.Ctx) error {
	body, err := bind[templateBody](c)
	if err != nil {
		return err
	}
	t, err := s.registry.Templates.Update(ctx, strings.Clone(c.Params("id")), body.applyTo)
	if err != nil {
		return noThing(err, "template")
	}
	return s.answerTemplate(ctx, c, t)
}

func (s *Service) deleteTemplate(ctx context.Context, c *fiber.Ctx) error {
	id := strings.Clone(c.Params("id"))
	unlock, err := s.named.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := s.registry.Templates.Get(ctx, id); err != nil {
		return noThing(err, "template")
	}
	endpoints, err := s.registry.Endpoints.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		if e.Fleet.TemplateID == id || e.Canary.Lasts() && e.Canary.Former.Fleet.TemplateID == id { // a rollback names it again
			return web.Errorf(web.InUse, "the template is in use by the endpoint %s", e.ID)
		}
	}
	if err := s.unused(ctx, "template", func(p pod.Pod) bool { return p.TemplateID == id }); err != nil {
		return err
	}
	return noContent(c, s.registry.Templates.Delete(ctx, id))
}

// unused refuses to delete what a pod uses that is not gone.
func (s *Service) unused(ctx context.Context, what string, uses func(pod.Pod) bool) error {
	pods, err := s.registry.Pods.List(ctx)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if p.Status != pod.Terminated && uses(p) {
			return web.Errorf(web.InUse, "the %s is in use by the pod %s", what, p.ID)
		}
	}
	return nil
}

// noThing says which kind of thing was not found.
func noThing(err error, what string) error {
	if errors.Is(err, pod.ErrNotFound) || errors.Is(err, registry.ErrNotFound) {
		return web.Errorf(web.NotFound, "no such %s", what)
	}
	return err
}

func templateViewOf(t pod.Template, all tally) api.Template {
	return api.Template{
		ID: t.ID, Name: t.Name, Category: t.Category, ContainerDiskInGb: t.Spec.DiskGB, RegistryAuthID: t.Spec.RegistryAuthID,
		DockerEntrypoint: orEmpty(t.Spec.Entrypoint), DockerStartCmd: orEmpty(t.Spec.Command), Env: pod.Redact(t.Spec.Env),
		ImageName: t.Spec.Image, IsServerless: t.Serverless, Ports: orEmpty(t.Spec.Ports), Capabilities: t.Spec.Capabilities, ModelCache: t.Spec.ModelCache, Readme: t.Readme,
		RuntimeInMin: int(all.ran[t.ID].Minutes()), VolumeInGb: t.Spec.VolumeGB, VolumeMountPath: t.Spec.VolumePath,
	}
}
