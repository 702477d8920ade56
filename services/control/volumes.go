package control

import (
	"cmp"
	"context"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/pod"
)

// defaultDataCenter is where a volume is that names no place.
const defaultDataCenter = "local"

// volumeBody makes or changes a network volume.
type volumeBody api.VolumeSpec

// applyTo returns v with what the body gives. A path must be below root.
func (b *volumeBody) applyTo(root string, v pod.Volume) (pod.Volume, error) {
	before := v
	set(&v.Name, b.Name)
	set(&v.SizeGB, b.Size)
	set(&v.DataCenterID, b.DataCenterID)
	set(&v.Path, b.Path)
	v.DataCenterID = cmp.Or(v.DataCenterID, defaultDataCenter)
	if err := v.Check(); err != nil {
		return v, err
	}
	if v.Path != before.Path {
		if err := pod.CheckVolumePath(root, v.Path); err != nil {
			return v, err
		}
	}
	if v.SizeGB < before.SizeGB {
		return v, &pod.FieldError{Field: "size", Text: "must not be less than it is: a volume does not shrink"}
	}
	return v, nil
}

func (s *Service) createVolume(ctx context.Context, c *fiber.Ctx) error {
	body, err := bind[volumeBody](c)
	if err != nil {
		return err
	}
	made, err := body.applyTo(s.cfg.VolumeRoot, pod.Volume{ID: newID(), Created: s.queue.Now().UTC()})
	if err != nil {
		return err
	}
	if err := s.registry.Volumes.Create(ctx, made.ID, made); err != nil {
		return err
	}
	return c.JSON(volumeViewOf(made))
}

func (s *Service) listVolumes(ctx context.Context, c *fiber.Ctx) error {
	at, err := pageOf(c)
	if err != nil {
		return err
	}
	list, err := s.registry.Volumes.List(ctx)
	if err != nil {
		return err
	}
	return answerList(c, cut(c, at, list, func(v pod.Volume) string { return v.ID }), volumeViewOf)
}

func (s *Service) getVolume(ctx context.Context, c *fiber.Ctx) error {
	v, err := s.registry.Volumes.Get(ctx, c.Params("id"))
	if err != nil {
		return noThing(err, "network volume")
	}
	return c.JSON(volumeViewOf(v))
}

func (s *Service) updateVolume(ctx context.Context, c *fiber.Ctx) error {
	body, err := bind[volumeBody](c)
	if err != nil {
		return err
	}
	v, err := s.registry.Volumes.Update(ctx, strings.Clone(c.Params("id")), func(v pod.Volume) (pod.Volume, error) {
		return body.applyTo(s.cfg.VolumeRoot, v)
	})
	if err != nil {
		return noThing(err, "network volume")
	}
	return c.JSON(volumeViewOf(v))
}

func (s *Service) deleteVolume(ctx context.Context, c *fiber.Ctx) error {
	id := strings.Clone(c.Params("id"))
	unlock, err := s.named.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := s.registry.Volumes.Get(ctx, id); err != nil {
		return noThing(err, "network volume")
	}
	if err := s.unused(ctx, "network volume", func(p pod.Pod) bool { return p.VolumeID == id }); err != nil {
		return err
	}
	return noContent(c, s.registry.Volumes.Delete(ctx, id))
}

func volumeViewOf(v pod.Volume) api.Volume {
	return api.Volume{ID: v.ID, Name: v.Name, Size: v.SizeGB, DataCenter: v.DataCenterID, Path: v.Path}
}
