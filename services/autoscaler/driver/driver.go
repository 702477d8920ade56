// Package driver starts and stops the pods of one machine: as processes of
// this host, or as containers of a Docker engine. It decides nothing; which
// pods there should be is the autoscaler's business.
package driver

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"flightline/shared/pod"
)

// ErrUnavailable means that the engine beneath does not answer now.
var ErrUnavailable = errors.New("driver: not available")

// Driver runs pods on one machine. All methods may be repeated: what was done
// already is no error.
type Driver interface {
	// Name is what pods call it.
	Name() pod.Driver
	// Machine is the id of the machine, the same after a restart, and what it
	// is. No two drivers that run pods apart have the same id.
	Machine(ctx context.Context) (id string, machine pod.Machine, err error)
	// Start makes the pod run. A pod that runs already is left alone; a pod that
	// ended is started again.
	Start(ctx context.Context, start Start) error
	// Stop asks the pod to end and kills it, with all that it started, when
	// grace is over. It returns once the pod has ended, or with ctx. A pod that
	// never was is no error.
	Stop(ctx context.Context, podID string, grace time.Duration) error
	// List returns the pods that run here, and those that ended and were not
	// forgotten. It returns ErrUnavailable if that is unknown now.
	List(ctx context.Context) ([]Instance, error)
	// Forget removes what is left of a pod that ended.
	Forget(ctx context.Context, podID string) error
}

// Start is what a pod is started with.
type Start struct {
	PodID string
	// Endpoint is "" for a pod that works for none.
	Endpoint string
	// Life is kept with what is started: a pod that is started again gets
	// another one.
	Life int
	Spec pod.Spec
	// Env is the whole environment: that of Spec and what makes it a worker.
	Env map[string]string
	// Volume is where the pod's network volume is on the host, "" for none. A
	// container sees it at Spec.VolumePath; a process finds it as it is.
	Volume string
	// ModelCache is the folder of the models on the pod's machine, "" for none. A container
	// sees it at pod.ModelCachePath; a process finds it by Env.
	ModelCache string
	// GPUs are those that the pod gets. A container sees these and no others; a process is
	// told by Env.
	GPUs []pod.GPU
	// Output, if not nil, takes what the pod prints, unless the driver is a Follower.
	Output *Output
	// Entered, if not nil, is called when the start comes to pod.Pulling or pod.Starting,
	// by a driver whose start takes time.
	Entered func(ctx context.Context, phase pod.Phase)
	// LeftAlone, if not nil, is called if the pod is left alone: it runs already, or another
	// program starts it on this machine, or did all but that. So it does not have Env.
	LeftAlone func(ctx context.Context)
}

// gpuUUIDs are the UUIDs of the GPUs that the pod gets.
func (s Start) gpuUUIDs() []string {
	var all []string
	for _, g := range s.GPUs {
		all = append(all, g.UUID)
	}
	return all
}

// environ is the environment as a system takes it, "NAME=value", by name.
func environ(variables map[string]string) []string {
	env := make([]string, 0, len(variables))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		env = append(env, name+"="+variables[name])
	}
	return env
}

// enter says that the start has come to a phase.
func (s Start) enter(ctx context.Context, phase pod.Phase) {
	if s.Entered != nil {
		s.Entered(ctx, phase)
	}
}

// leave says that the pod is left alone.
func (s Start) leave(ctx context.Context) {
	if s.LeftAlone != nil {
		s.LeftAlone(ctx)
	}
}

// Output takes what a pod prints. Its writers must not wait, nor fail. The driver that is given
// one calls End once nothing more comes: when the pod has ended, or if it did not start.
type Output struct {
	Stdout, Stderr io.Writer
	End            func()
}

// end calls End. Of nil it does nothing.
func (o *Output) end() {
	if o != nil {
		o.End()
	}
}

// Printed is a piece of what a pod printed.
type Printed struct {
	At     time.Time
	Stderr bool
	Text   []byte // good until the next one
}

// Follower is a Driver whose pods print to an engine that keeps it.
type Follower interface {
	// Follow passes on what the pod printed after since, and then what it prints,
	// until the pod has ended or ctx ends. A pod that is not there has printed
	// nothing. It returns ErrUnavailable, after which it may be called again.
	Follow(ctx context.Context, podID string, since time.Time, each func(Printed)) error
}

// Closer is a Driver whose pods end with this program. The pods of others go on.
type Closer interface {
	// Close asks all pods to end, and kills what is left when ctx ends. It returns an error
	// if some go on all the same.
	Close(ctx context.Context) error
}

// Remote is a Driver whose machine may be another one than that of this program, whose
// folders are not those of the pods then.
type Remote interface{ Remote() bool }

// Instance is a pod as the driver has it.
type Instance struct {
	PodID    string
	Endpoint string
	// Life is that of the start.
	Life int
	// Running is false once it ended; then Code is its exit code, -1 if a
	// signal ended it, and Reason the tail of what it wrote to stderr.
	Running bool
	Code    int
	Reason  string
	Started time.Time
	// GPUs are the UUIDs of those that it was started with, nil for none.
	GPUs []string
	// PublicIP and PortMappings are known once the pod is up.
	PublicIP     string
	PortMappings map[int]int
}
