package control

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// podID is the pod that the route names.
func podID(c *fiber.Ctx) (string, error) {
	id := strings.Clone(c.Params("pod"))
	if !pod.ValidID(id) {
		return "", web.Errorf(web.InvalidRequest, "podId must be 1 to 128 letters, digits, '-' or '_'")
	}
	return id, nil
}

func (s *Service) getPod(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	wanted, err := includesOf(c)
	if err != nil {
		return err
	}
	id, err := podID(c)
	if err != nil {
		return err
	}
	p, err := s.registry.Pods.Get(ctx, id)
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
func (s *Service) createPod(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	body, err := bind[podBody](c)
	if err != nil {
		return err
	}
	template, err := s.basis(ctx, &body)
	if err != nil {
		return err
	}
	made, err := body.pod(newID(), template)
	if err != nil {
		return err
	}
	key, err := s.registry.Keys.Check(ctx, web.Key(c))
	if err != nil {
		return err
	}
	now := s.queue.Now().UTC()
	made.Owner, made.Status, made.Created, made.Changed, made.Change = key.ID, pod.Running, now, now, "Created by request"
	if err := s.registry.Pods.Create(ctx, made); err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(podViewOf(made, s.cfg.Catalog, now))
}

// basis is the template that the body names, an empty one for none; it refuses
// a body that names what there is not.
func (s *Service) basis(ctx context.Context, body *podBody) (pod.Template, error) {
	if _, err := named(ctx, body.NetworkVolumeID, s.registry.Volumes.Get, "networkVolumeId is that of no network volume"); err != nil {
		return pod.Template{}, err
	}
	return s.template(ctx, body.TemplateID)
}

// template is the one that a body names, an empty one for none.
func (s *Service) template(ctx context.Context, id *string) (pod.Template, error) {
	return named(ctx, id, s.registry.Templates.Get, "templateId is that of no template")
}

// named gets what a body names, nothing if it names none; that there is none of
// that id is the body's fault.
func named[T any](ctx context.Context, id *string, get func(context.Context, string) (T, error), fault string) (T, error) {
	if blank(id) {
		var none T
		return none, nil
	}
	v, err := get(ctx, *id)
	if errors.Is(err, pod.ErrNotFound) {
		return v, web.Errorf(web.InvalidRequest, "%s", fault)
	}
	return v, err
}

// updatePod changes what the pod is started from, as of its next start.
func (s *Service) updatePod(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
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

func (s *Service) startPod(c *fiber.Ctx) error { return s.movePod(c, pod.Start, "Started by request") }

func (s *Service) stopPod(c *fiber.Ctx) error { return s.movePod(c, pod.Stop, "Stopped by request") }

// movePod says what a pod should be; its driver follows.
func (s *Service) movePod(c *fiber.Ctx, by pod.Trigger, change string) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	id, err := podID(c)
	if err != nil {
		return err
	}
	p, err := s.registry.Pods.Get(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case p.Driver == "" || p.Driver == pod.External:
		return web.Errorf(web.PodConflict, "cannot %s this pod: its owner runs it, and no driver of this server", by)
	case p.Endpoint != "" && by == pod.Start:
		return web.Errorf(web.PodConflict, "cannot start this pod: the autoscaler starts the workers of an endpoint")
	}
	gone := ""
	if by == pod.Start && p.Status != pod.Running {
		if gone, err = s.lostMachine(ctx, p); err != nil {
			return err
		}
	}
	p, err = s.registry.Pods.Move(ctx, id, by, change, s.queue.Now(), func(p *pod.Pod) {
		if gone != "" && p.MachineID == gone {
			p.MachineID, p.Machine, p.PublicIP, p.PortMappings = "", pod.Machine{}, "", nil
		}
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
func (s *Service) deletePod(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	id, err := podID(c)
	if err != nil {
		return err
	}
	p, err := s.registry.Pods.Get(ctx, id)
	if err != nil {
		return err
	}
	if err := s.letGo(ctx, p); err != nil {
		return err
	}
	if _, err := s.registry.Pods.At(p.Endpoint).Move(ctx, id, pod.Remove, "Deleted by request", s.queue.Now(), nil); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// letGo takes the token of a worker that no driver stops. One that speaks NATS
// itself cannot be kept out: while it lives, so does its pod.
func (s *Service) letGo(ctx context.Context, p pod.Pod) error {
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
