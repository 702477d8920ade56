package control

import (
	"time"

	"flightline/shared/pod"
)

// tally is what all pods together have, counted once for any number of views.
type tally struct {
	gpus map[string]int           // that running pods have, by machine
	ran  map[string]time.Duration // since their last start, by template
}

func tallyOf(pods []pod.Pod, now time.Time) tally {
	t := tally{gpus: map[string]int{}, ran: map[string]time.Duration{}}
	for _, p := range pods {
		end := p.Changed
		if p.Status == pod.Running {
			_, gpus := p.GPUs()
			t.gpus[p.MachineID] += gpus
			end = now
		}
		if !p.Started.IsZero() {
			t.ran[p.TemplateID] += max(0, end.Sub(p.Started))
		}
	}
	return t
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
