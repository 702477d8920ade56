package control

import (
	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// listMachines shows the machines that run pods now, with their GPUs and who holds them.
func (s *Service) listMachines(c *fiber.Ctx) error {
	ctx, cancel := web.RequestContext(c)
	defer cancel()
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
	views := make([]api.MachineInventory, 0, len(machines))
	for _, m := range machines {
		views = append(views, inventoryViewOf(m, claims))
	}
	return c.JSON(views)
}

func inventoryViewOf(m registry.Inventory, claims map[string]registry.GPUClaims) api.MachineInventory {
	view := api.MachineInventory{ID: m.ID, Driver: string(m.Driver), Hostname: m.Hostname, GPUs: make([]api.MachineGPU, 0, len(m.GPUs))}
	for _, g := range m.GPUs {
		held := claims[g.UUID]
		card := api.MachineGPU{
			UUID: g.UUID, Vendor: g.Vendor, Name: g.Name, MemoryMb: g.MemoryMB, DriverVersion: g.Driver, CUDAVersion: g.CUDA,
			Healthy: g.Health == "", Problem: g.Health, FreeShare: shareOf(pod.WholeGPU - held.Used()), Claims: make([]api.GPUClaim, 0, len(held.Holders)),
		}
		for _, h := range held.Holders {
			card.Claims = append(card.Claims, api.GPUClaim{PodID: h.Pod, EndpointID: h.Endpoint, Share: shareOf(h.Share), ClaimedAt: web.FormatTime(h.Since)})
		}
		view.GPUs = append(view.GPUs, card)
	}
	return view
}

// shareOf is hundredths as a fraction.
func shareOf(hundredths int) float64 { return float64(hundredths) / pod.WholeGPU }
