package endpoint

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
)

// Run is what an endpoint's workers are started from, but for what a template adds.
type Run struct {
	// Fleet is without what does not change a worker: priority, minHold, maxSwapWait.
	Fleet Fleet             `json:"fleet,omitzero"`
	Env   map[string]string `json:"env,omitempty"`
}

// Run returns what the endpoint's workers are started from.
func (e Endpoint) Run() Run {
	f := e.Fleet
	f.Priority, f.MinHold, f.MaxSwapWait = 0, 0, 0
	f.Command, f.GPUTypes, f.ModelCache = slices.Clone(f.Command), slices.Clone(f.GPUTypes), slices.Clone(f.ModelCache)
	return Run{Fleet: f, Env: maps.Clone(e.Env)}
}

// Equal reports whether workers started from both are the same. Empty and missing are
// the same.
func (r Run) Equal(other Run) bool { return reflect.DeepEqual(r.compact(), other.compact()) }

func (r Run) compact() Run {
	if len(r.Env) == 0 {
		r.Env = nil
	}
	if len(r.Fleet.Command) == 0 {
		r.Fleet.Command = nil
	}
	if len(r.Fleet.GPUTypes) == 0 {
		r.Fleet.GPUTypes = nil
	}
	if len(r.Fleet.ModelCache) == 0 {
		r.Fleet.ModelCache = nil
	}
	if r.Fleet.External() {
		r.Fleet.Driver = ""
	}
	return r
}

// ReleaseVersion is Release, 1 for an endpoint that was made before releases were counted.
func (e Endpoint) ReleaseVersion() int { return cmp.Or(e.Release, 1) }

// Released returns e, which was made from old, with the Release that it has: its Version
// if its workers are started from something else than those of old. With CanaryPercent a
// trial begins.
func (e Endpoint) Released(old Endpoint) Endpoint {
	if !e.Run().Equal(old.Run()) {
		e.Release = e.Version
		e = e.withCanary(old)
	}
	return e
}
