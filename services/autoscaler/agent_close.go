package autoscaler

import (
	"cmp"
	"context"
	"time"

	"flightline/shared/pod"
)

// closeWithin bounds the end of a driver's pods.
const closeWithin = 3 * time.Second

// closer is a driver whose pods end with this program.
type closer interface {
	Close(ctx context.Context) error
}

// close ends the driver's pods, if they are to end with us, and says so.
func (a *agent) close(ctx context.Context) {
	ending, ok := a.driver.(closer)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	err := ending.Close(ctx)
	pods, listErr := a.registry.Pods.List(ctx)
	a.complain(ctx, "pods not ended", a.machine, cmp.Or(err, listErr))
	for _, p := range pods {
		if p.MachineID != a.machine || p.Driver != a.driver.Name() || p.Status != pod.Running {
			continue
		}
		by := pod.Exit
		if fleet(p) {
			by = pod.Remove // others are started where they are needed
		}
		_, err := a.registry.Pods.Move(ctx, p.ID, by, "its autoscaler was stopped", a.queue.Now(), nil)
		a.complain(ctx, "end of a pod not noted", p.ID, err)
		a.farewell(ctx, p)
	}
}
