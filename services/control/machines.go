package control

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// listMachines shows the machines that run pods now, with their GPUs, who holds
// them, and their models.
func (s *Service) listMachines(ctx context.Context, c *fiber.Ctx) error {
	at, err := pageOf(c)
	if err != nil {
		return err
	}
	machines, err := s.registry.GPUs.Machines(ctx)
	if err != nil {
		return err
	}
	claims, err := s.registry.GPUs.Claims(ctx)
	if err != nil {
		return err
	}
	machines = cut(c, at, machines, func(m registry.Inventory) string { return m.ID })
	return answerList(c, machines, func(m registry.Inventory) api.MachineInventory { return inventoryViewOf(m, claims, s.queue.Now()) })
}

func inventoryViewOf(m registry.Inventory, claims map[string]registry.GPUClaims, now time.Time) api.MachineInventory {
	view := api.MachineInventory{ID: m.ID, Driver: string(m.Driver), Hostname: m.Hostname, GPUs: make([]api.MachineGPU, 0, len(m.GPUs)), Models: orEmpty(m.Models)}
	for _, g := range m.GPUs {
		view.GPUs = append(view.GPUs, cardViewOf(g, claims[g.UUID], now))
	}
	return view
}

func cardViewOf(g pod.GPU, held registry.GPUClaims, now time.Time) api.MachineGPU {
	card := api.MachineGPU{
		UUID: g.UUID, Vendor: g.Vendor, Name: g.Name, MemoryMb: g.MemoryMB, DriverVersion: g.Driver, CUDAVersion: g.CUDA,
		Healthy: g.Health == "", Problem: g.Health, FreeShare: shareOf(pod.WholeGPU - held.Used()), Claims: make([]api.GPUClaim, 0, len(held.Holders)),
	}
	for _, h := range held.Holders {
		card.Claims = append(card.Claims, api.GPUClaim{PodID: h.Pod, EndpointID: h.Endpoint, Share: shareOf(h.Share), ClaimedAt: api.FormatTime(h.Since)})
	}
	if q := held.Quarantine; q.Exists() {
		view := api.GPUQuarantine{State: api.Quarantined, Reason: q.Reason, By: "autoscaler", Since: api.FormatTime(q.Since), Until: api.FormatTime(q.Until), Count: q.Count}
		if q.Probation(now) {
			view.State = api.Probation
		}
		if q.By != "" {
			view.By = "request"
		}
		card.Quarantine = &view
	}
	return card
}

// quarantineGPU keeps pods off a GPU until a deadline.
func (s *Service) quarantineGPU(ctx context.Context, c *fiber.Ctx) error {
	body, err := bindOptional[api.Quarantine](c)
	if err != nil {
		return err
	}
	length := pod.DefaultQuarantine.Milliseconds()
	set(&length, body.DurationMs)
	if least, most := pod.MinQuarantine.Milliseconds(), pod.MaxQuarantine.Milliseconds(); length < least || length > most {
		return web.Errorf(web.InvalidRequest, "durationMs must be between %d and %d, got %d", least, most, length)
	}
	if err := checkReason(body.Reason); err != nil {
		return err
	}
	machine, g, _, err := findGPU(ctx, s.registry.GPUs, c)
	if err != nil {
		return err
	}
	key := web.Caller(c)
	q := registry.Quarantine{Machine: machine, Reason: cmp.Or(body.Reason, "by request"), By: cmp.Or(key.ID, "request"), Since: s.queue.Now().UTC()}
	held, _, err := s.registry.GPUs.Quarantine(ctx, g.UUID, q, func(int) time.Duration { return time.Duration(length) * time.Millisecond })
	if err != nil {
		return err
	}
	s.log.WarnContext(ctx, "GPU quarantined by request", "gpu", g.UUID, "machine", machine, "until", held.Until, "reason", held.Reason, "key", key.ID)
	return answerGPU(ctx, s.registry.GPUs, c, g, s.queue.Now())
}

// restoreGPU ends the quarantine of a GPU, if it has one. That of a machine that is away
// can be ended too.
func (s *Service) restoreGPU(ctx context.Context, c *fiber.Ctx) error {
	machine, g, held, err := findGPU(ctx, s.registry.GPUs, c)
	if err != nil {
		return err
	}
	if held.Quarantine.Exists() {
		if err := s.registry.GPUs.Restore(ctx, g.UUID, held.Quarantine.Since, s.queue.Now(), true); err != nil {
			return err
		}
		s.log.WarnContext(ctx, "GPU restored by request", "gpu", g.UUID, "machine", machine)
	}
	return answerGPU(ctx, s.registry.GPUs, c, g, s.queue.Now())
}

// findGPU is the GPU that the path names, of a machine that reports it, or that did when
// it was quarantined.
func findGPU(ctx context.Context, gpus *registry.GPUs, c *fiber.Ctx) (machine string, g pod.GPU, held registry.GPUClaims, err error) {
	machine, uuid := strings.Clone(c.Params("machine")), strings.Clone(c.Params("gpu"))
	machines, err := gpus.Machines(ctx)
	if err != nil {
		return machine, g, held, err
	}
	claims, err := gpus.Claims(ctx)
	if err != nil {
		return machine, g, held, err
	}
	held = claims[uuid]
	reports := false
	for _, m := range machines {
		if m.ID != machine {
			continue
		}
		reports = true
		if at := slices.IndexFunc(m.GPUs, func(g pod.GPU) bool { return g.UUID == uuid }); at >= 0 {
			return machine, m.GPUs[at], held, nil
		}
	}
	switch {
	case held.Quarantine.Exists() && held.Quarantine.Machine == machine:
		return machine, pod.GPU{UUID: uuid}, held, nil
	case reports:
		return machine, g, held, web.Errorf(web.NotFound, "no such GPU on this machine")
	}
	return machine, g, held, web.Errorf(web.NotFound, "no such machine")
}

// answerGPU shows the GPU as it is now.
func answerGPU(ctx context.Context, gpus *registry.GPUs, c *fiber.Ctx, g pod.GPU, now time.Time) error {
	claims, err := gpus.Claims(ctx)
	if err != nil {
		return err
	}
	return c.JSON(cardViewOf(g, claims[g.UUID], now))
}

func checkReason(text string) error {
	switch {
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return web.Errorf(web.InvalidRequest, "reason must hold no control characters")
	case utf8.RuneCountInString(text) > pod.MaxQuarantineReason:
		return web.Errorf(web.InvalidRequest, "reason must have at most %d characters, got %d", pod.MaxQuarantineReason, utf8.RuneCountInString(text))
	}
	return nil
}

// shareOf is hundredths as a fraction.
func shareOf(hundredths int) float64 { return float64(hundredths) / pod.WholeGPU }
