package console

import (
	"net/http"
	"slices"
	"strings"

	"flightline/shared/api"
	"flightline/shared/client"
)

type machinesData struct {
	Machines []machine
	// Elsewhere are pods that no machine of an autoscaler runs.
	Elsewhere []client.Pod
	Waiting   []attention
	Filter    string
	Needy     needy
}

// machine is a machine with its pods.
type machine struct {
	client.MachineInventory
	Pods []client.Pod
}

// freeOf is the part of a GPU that no pod holds, in percent.
func freeOf(g client.MachineGPU) int64 { return int64(g.FreeShare*100 + 0.5) }

func loadMachines(v *visit) (any, error) {
	if !v.May("pods", "") {
		return nil, &pageError{status: http.StatusForbidden, text: "This key may not see machines; it needs the scope pods or control."}
	}
	d := &machinesData{Filter: v.query.Get("q")}
	machines, err := v.control.Machines(v.ctx)
	if err != nil {
		return nil, err
	}
	pods, err := v.control.Pods().List(v.ctx, nil)
	if err != nil {
		return nil, err
	}
	of := map[string][]client.Pod{}
	for _, p := range pods {
		if p.Status != "RUNNING" {
			continue
		}
		of[p.MachineID] = append(of[p.MachineID], p)
	}
	for _, m := range machines {
		shown := machine{MachineInventory: m, Pods: of[m.ID]}
		delete(of, m.ID)
		if d.Filter == "" || shown.has(strings.ToLower(d.Filter)) {
			d.Machines = append(d.Machines, shown)
		}
	}
	for _, rest := range of {
		d.Elsewhere = append(d.Elsewhere, rest...)
	}
	slices.SortFunc(d.Elsewhere, func(a, b client.Pod) int { return strings.Compare(a.ID, b.ID) })
	d.loadWaiting(v)
	return d, nil
}

// has reports whether the machine, a GPU, a model or a pod of it has the text in its name.
func (m machine) has(text string) bool {
	names := []string{m.ID, m.Hostname, m.Driver}
	for _, g := range m.GPUs {
		names = append(names, g.Name, g.UUID)
	}
	for _, model := range m.Models {
		names = append(names, model.Name)
	}
	for _, p := range m.Pods {
		names = append(names, p.ID, p.Name, p.Endpoint)
	}
	return strings.Contains(strings.ToLower(strings.Join(names, "\n")), text)
}

// loadWaiting finds the endpoints whose jobs wait for a machine or a worker, and for what.
func (d *machinesData) loadWaiting(v *visit) {
	if !v.mayReadSome() {
		return
	}
	d.Needy.load(v, lastLoad[machinesData](v).Needy)
	for _, e := range d.Needy.endpoints {
		for _, need := range e.Attention {
			if slices.Contains([]string{api.NeedsScaling, api.NeedsGPU, api.NeedsBackoff, api.NeedsNoWorker}, need.Code) {
				d.Waiting = append(d.Waiting, attention{e.ID, need.Code, need.Text})
			}
		}
	}
}

// quarantineGPU keeps pods off a GPU for as long as the API does by default.
func quarantineGPU(v *visit) (string, error) {
	if _, err := v.control.QuarantineGPU(v.ctx, v.param("machine"), v.param("gpu"), 0, v.form.Get("reason")); err != nil {
		return "", err
	}
	v.notice("GPU %s gets no pods for an hour; its workers leave once they have no job.", v.param("gpu"))
	return Root + "/machines", nil
}

func restoreGPU(v *visit) (string, error) {
	if _, err := v.control.RestoreGPU(v.ctx, v.param("machine"), v.param("gpu")); err != nil {
		return "", err
	}
	v.notice("GPU %s gets pods again.", v.param("gpu"))
	return Root + "/machines", nil
}
