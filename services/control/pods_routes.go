package control

import (
	"slices"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

// podRoutes adds pods, templates and network volumes to /v1. To look at them a
// key needs the scope pods; to change them control, since what a pod runs, runs
// on somebody's machine.
func (s *Service) podRoutes(v1 fiber.Router, guarded func(fiber.Handler) []fiber.Handler) {
	look := []fiber.Handler{web.Auth(s.registry.Keys, registry.LookUp), web.MaxBody(maxBody)}
	seen := func(h fiber.Handler) []fiber.Handler { return append(slices.Clip(look), h) }
	kept := func(h fiber.Handler, bucket string) []fiber.Handler { return guarded(s.durably(h, bucket)) }

	v1.Get("/pods", seen(s.listPods)...)
	v1.Get("/pods/:pod", seen(s.getPod)...)
	v1.Post("/pods", kept(s.createPod, streams.BucketPods)...)
	v1.Patch("/pods/:pod", kept(s.updatePod, streams.BucketPods)...)
	v1.Post("/pods/:pod/update", kept(s.updatePod, streams.BucketPods)...) // RunPod's older spelling
	v1.Post("/pods/:pod/start", kept(s.startPod, streams.BucketPods)...)
	v1.Post("/pods/:pod/stop", kept(s.stopPod, streams.BucketPods)...)
	v1.Delete("/pods/:pod", kept(s.durably(s.deletePod, streams.BucketTokens), streams.BucketPods)...)

	for _, kind := range []struct {
		name, bucket                         string
		create, list, get, update, deleteOne fiber.Handler
	}{
		{"/templates", streams.BucketTemplates, s.createTemplate, s.listTemplates, s.getTemplate, s.updateTemplate, s.deleteTemplate},
		{"/networkvolumes", streams.BucketVolumes, s.createVolume, s.listVolumes, s.getVolume, s.updateVolume, s.deleteVolume},
	} {
		v1.Get(kind.name, seen(kind.list)...)
		v1.Get(kind.name+"/:id", seen(kind.get)...)
		v1.Post(kind.name, kept(kind.create, kind.bucket)...)
		v1.Patch(kind.name+"/:id", kept(kind.update, kind.bucket)...)
		v1.Post(kind.name+"/:id/update", kept(kind.update, kind.bucket)...)
		v1.Delete(kind.name+"/:id", kept(kind.deleteOne, kind.bucket)...)
	}
}
