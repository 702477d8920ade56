package control

import (
	"errors"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
)

// ontoFleet is onto for what starts workers. A value of env that was shown as
// pod.Hidden and comes back stays what it is.
func (b *endpointBody) ontoFleet(e endpoint.Endpoint) (endpoint.Endpoint, error) {
	set(&e.ScalerType, b.ScalerType)
	set(&e.ScalerValue, positive(b.ScalerValue))
	if given := positive(b.IdleTimeout); given != nil {
		seconds := min(max(*given, -maxSeconds), maxSeconds)
		e.IdleTimeout = time.Duration(seconds) * time.Second
	}
	set(&e.Fleet.Driver, b.Driver)
	set(&e.Fleet.TemplateID, b.TemplateID)
	set(&e.Fleet.Image, b.ImageName)
	set(&e.Fleet.Command, b.Command)
	set(&e.Fleet.GPUs, b.GPUCount)
	set(&e.Fleet.VCPUs, b.VCPUCount)
	set(&e.Fleet.MemoryGB, b.MemoryInGb)
	if b.Env == nil {
		return e, nil
	}
	env, err := pod.Restore(*b.Env, e.Env)
	if wrong, ok := errors.AsType[*pod.FieldError](err); ok {
		return e, &endpoint.FieldError{Field: wrong.Field, Problem: wrong.Text}
	}
	e.Env = env
	return e, err
}

// maxSeconds is out of every bound, and a Duration holds it.
const maxSeconds = 1_000_000
