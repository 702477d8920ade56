package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/streams"
)

// ForWorker is the part of a Registry that a worker may use.
type ForWorker struct {
	// Endpoints have what endpoint.Endpoint.ForWorkers returns. They can be read
	// one by one only.
	Endpoints *Endpoints
	Workers   *Workers
	Pods      *WorkerPods
}

// NewForWorker binds to the buckets that workers may use. It starts nothing. A
// nil log is silence.
func NewForWorker(ctx context.Context, js jetstream.JetStream, log *slog.Logger) (*ForWorker, error) {
	o := newOpener(js, log)
	copies := open[endpoint.Endpoint](ctx, o, streams.BucketWorkerEndpoints)
	endpoints := &Endpoints{table: copies, cache: newCache(copies, o.log)}
	r := &ForWorker{Endpoints: endpoints, Workers: newWorkers(ctx, o), Pods: newWorkerPods(ctx, o)}
	return r, o.err
}

// WorkerPods are the pods that no driver runs, by endpoint and id, as their
// workers, or gateways for them, put them on record. A worker may write what it
// likes there, so nothing is run from it: Pods shows it without a driver. Of a
// driver's pod the bucket has what its worker may know: the requests to drain, to
// sleep and to wake.
type WorkerPods struct{ podBucket }

func newWorkerPods(ctx context.Context, o *opener) *WorkerPods {
	b := newPodBucket(ctx, o, streams.BucketWorkerPods)
	b.table.skipsUnreadable = true
	return &WorkerPods{b}
}

// isOwners reports whether a pod belongs into WorkerPods.
func isOwners(p pod.Pod) bool { return p.Driver == "" && p.Endpoint != "" }

// ownersView is the pod that a worker put on record, without what a worker does
// not decide.
func ownersView(e entry[pod.Pod]) pod.Pod {
	p := e.value
	p.Endpoint, p.ID, _ = strings.Cut(e.key, ".")
	p.Driver, p.Owner, p.Cut, p.Gone = "", "", nil, time.Time{}
	if _, err := p.Status.Next(pod.Exit); err != nil {
		p.Status = pod.Exited
	}
	return p
}

// Get returns the worker's own record of its pod, or pod.ErrNotFound. Its
// Driver is set if a driver runs the pod and something was asked of it.
func (w *WorkerPods) Get(ctx context.Context, endpointID, id string) (pod.Pod, error) {
	if !endpoint.ValidID(endpointID) || !pod.ValidID(id) {
		return pod.Pod{}, pod.ErrNotFound
	}
	got, err := w.table.read(ctx, workerKey(endpointID, id))
	return got.value, notFoundAs(pod.ErrNotFound, err)
}

// find returns the last written record of this id, at one endpoint or, with "",
// at any; or ErrNotFound.
func (w *WorkerPods) find(ctx context.Context, endpointID, id string) (entry[pod.Pod], error) {
	if endpointID != "" {
		return w.table.read(ctx, workerKey(endpointID, id))
	}
	entries, err := w.table.list(ctx, workerKey("*", id))
	if err != nil {
		return entry[pod.Pod]{}, err
	}
	if entries = w.table.valid(entries); len(entries) == 0 {
		return entry[pod.Pod]{}, fmt.Errorf("find pod %s: %w", id, ErrNotFound)
	}
	return slices.MaxFunc(entries, func(a, b entry[pod.Pod]) int { return cmp.Compare(a.revision, b.revision) }), nil
}

// Move is Pods.Move for the worker's own record.
func (w *WorkerPods) Move(ctx context.Context, endpointID, id string, by pod.Trigger, change string, now time.Time) (pod.Pod, error) {
	return movePod(func(do func(pod.Pod) (pod.Pod, error)) (pod.Pod, error) {
		return w.update(ctx, workerKey(endpointID, id), do)
	}, by, change, now, nil)
}

// Appear says that the worker of this pod lives, so that there is a true
// record of it: one is made if none exists, and a pod that its owner runs
// and that was EXITED runs again, as of now. What seen knows of the machine,
// the spec and the start is kept; its zero values change nothing. That an
// earlier life was to drain is past. Repeating it writes nothing.
//
// A pod that was removed stays so, unless that was before began, when this
// life of the worker began; then it is another pod of the same id. Appear
// returns a *pod.TransitionError for a pod that stays removed, and an ErrInvalid
// for an id that cannot be.
func (w *WorkerPods) Appear(ctx context.Context, seen pod.Pod, began, now time.Time) (pod.Pod, error) {
	if !endpoint.ValidID(seen.Endpoint) || !pod.ValidID(seen.ID) {
		return pod.Pod{}, fmt.Errorf("%w: pod %q of endpoint %q", ErrInvalid, seen.ID, seen.Endpoint)
	}
	for range maxUpdates {
		old, err := w.Get(ctx, seen.Endpoint, seen.ID)
		switch {
		case errors.Is(err, pod.ErrNotFound):
			made, err := w.create(ctx, workerKey(seen.Endpoint, seen.ID), appeared(seen, now))
			if !errors.Is(err, ErrExists) {
				return made, err
			}
			continue
		case err != nil:
			return pod.Pod{}, err
		case old.Status == pod.Terminated && old.Changed.Before(began):
			if err := w.table.clear(ctx, workerKey(seen.Endpoint, seen.ID)); err != nil {
				return old, err
			}
			continue
		}
		if next := completed(old, seen, began); old.Status == pod.Running && reflect.DeepEqual(old, next) {
			return old, nil
		}
		return movePod(func(do func(pod.Pod) (pod.Pod, error)) (pod.Pod, error) {
			return w.update(ctx, workerKey(seen.Endpoint, seen.ID), do)
		}, pod.Start, "its worker is back", now, func(x *pod.Pod) error {
			*x = completed(*x, seen, began)
			return nil
		})
	}
	return pod.Pod{}, fmt.Errorf("pod %s appears: %w", seen.ID, ErrConflict)
}

// appeared is the record of a pod that nobody here started.
func appeared(seen pod.Pod, now time.Time) pod.Pod {
	seen.Status, seen.Driver = pod.Running, ""
	seen.Created, seen.Changed, seen.Change = now.UTC(), now.UTC(), "its worker appeared"
	if seen.Started.IsZero() {
		seen.Started = seen.Created
	}
	seen.Name = cmp.Or(seen.Name, seen.ID)
	return seen
}

// completed is old with what its worker knows better.
func completed(old, seen pod.Pod, began time.Time) pod.Pod {
	if !old.Drains(began) {
		old.Drain = pod.Drain{}
	}
	if old.Sleep.At.Before(began) {
		old.Sleep = pod.Sleep{}
	}
	if !reflect.DeepEqual(seen.Machine, pod.Machine{}) {
		old.Machine = seen.Machine
	}
	old.MachineID = cmp.Or(seen.MachineID, old.MachineID)
	if seen.Spec.Image != "" || len(seen.Spec.Command) > 0 {
		old.Spec.Image, old.Spec.Command = seen.Spec.Image, seen.Spec.Command
	}
	old.Started = cmp.Or(seen.Started, old.Started)
	old.EndpointVersion = max(old.EndpointVersion, seen.EndpointVersion)
	return old
}

// show lets the worker of a driver's pod read what is asked of it: set copies that, and
// returns false if the record has it already.
func (w *WorkerPods) show(ctx context.Context, asked pod.Pod, now time.Time, set func(*pod.Pod) bool) error {
	_, err := w.change(ctx, workerKey(asked.Endpoint, asked.ID), func(p pod.Pod, found bool) (pod.Pod, error) {
		if !found {
			p = appeared(pod.Pod{ID: asked.ID, Endpoint: asked.Endpoint}, now)
		}
		if changed := set(&p); found && !changed && p.Driver == asked.Driver {
			return p, errUnchanged
		}
		p.Driver = asked.Driver
		return p, nil
	})
	return ignoreUnchanged(err)
}
