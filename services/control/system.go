package control

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// maxStreamName bounds the text that is looked for in the names of streams.
const maxStreamName = 255

// getSystem answers how the installation is: streams, consumers, processes and what
// the doctor finds at once.
func (s *Service) getSystem(ctx context.Context, c *fiber.Ctx) error {
	name := strings.Clone(c.Query("stream"))
	if len(name) > maxStreamName {
		return web.Errorf(web.InvalidRequest, "stream must be of at most %d bytes, got %d", maxStreamName, len(name))
	}
	v, err := s.system(ctx, name)
	if err != nil {
		return err
	}
	instances, err := s.registry.Instances.List(ctx)
	if err != nil {
		return err
	}
	v.Version, v.Processes = s.cfg.Version, processesOf(instances)
	return c.JSON(v)
}

func processesOf(instances []registry.Instance) []api.Process {
	list := make([]api.Process, 0, len(instances))
	for _, x := range instances {
		list = append(list, api.Process{ID: x.ID, Role: x.Role, Version: x.Version, Hostname: x.Hostname, StartedAt: api.FormatTime(x.Started)})
	}
	slices.SortFunc(list, func(a, b api.Process) int {
		return cmp.Or(strings.Compare(a.Role, b.Role), strings.Compare(a.ID, b.ID))
	})
	return list
}
