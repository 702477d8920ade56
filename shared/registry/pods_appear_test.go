package registry_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/pod"
)

func TestAppear(t *testing.T) {
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
	seen := pod.Pod{
		ID: "w1", Endpoint: "ep", EndpointVersion: 2, Spec: pod.Spec{Command: []string{"worker"}},
		MachineID: "m1", Machine: pod.Machine{Hostname: "h1", VCPUs: 2}, Started: at(1),
	}
	fresh := seen
	fresh.Name, fresh.Status, fresh.Created, fresh.Changed, fresh.Change = "w1", pod.Running, at(9), at(9), "its worker appeared"
	fresh.Expires = true
	with := func(p pod.Pod, change func(*pod.Pod)) pod.Pod { change(&p); return p }
	fleet := pod.Pod{ID: "w1", Name: "n", Status: pod.Running, Endpoint: "ep", Driver: pod.Process, MachineID: "m0", Created: at(0), Changed: at(0), Change: "started", Expires: true}

	tests := map[string]struct {
		old  *pod.Pod
		want pod.Pod
		err  error
	}{
		"none": {nil, fresh, nil},
		"running, the same": {
			new(with(fresh, func(p *pod.Pod) { p.Changed = at(2) })), with(fresh, func(p *pod.Pod) { p.Changed = at(2) }), nil,
		},
		"running, started again": {
			new(with(fresh, func(p *pod.Pod) { p.Started, p.Machine, p.Changed, p.Name = at(0), pod.Machine{}, at(2), "mine" })),
			with(fresh, func(p *pod.Pod) { p.Changed, p.Name = at(2), "mine" }), nil,
		},
		"exited": {
			new(with(fresh, func(p *pod.Pod) { p.Status, p.Created, p.Changed, p.Change = pod.Exited, at(0), at(2), "left" })),
			with(fresh, func(p *pod.Pod) { p.Created, p.Change, p.By = at(0), "its worker is back", pod.Start }), nil,
		},
		"removed before it began": {new(with(fresh, func(p *pod.Pod) { p.Status, p.Changed = pod.Terminated, at(4) })), fresh, nil},
		"removed since": {
			new(with(fresh, func(p *pod.Pod) { p.Status, p.Changed = pod.Terminated, at(6) })),
			with(fresh, func(p *pod.Pod) { p.Status, p.Changed = pod.Terminated, at(6) }), pod.ErrConflict,
		},
		"a driver's": {&fleet, fleet, nil},
		"a driver's, exited": {
			new(with(fleet, func(p *pod.Pod) { p.Status = pod.Exited })), with(fleet, func(p *pod.Pod) { p.Status = pod.Exited }), nil,
		},
		"a driver's, of another endpoint": {
			new(with(fleet, func(p *pod.Pod) { p.Endpoint = "other" })), with(fleet, func(p *pod.Pod) { p.Endpoint = "other" }), pod.ErrConflict,
		},
		"of another endpoint": {new(with(fresh, func(p *pod.Pod) { p.Endpoint = "other" })), fresh, nil},
	}
	r := open(t, anotherBus(t))
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := r.Pods.Forget(t.Context(), seen); err != nil {
				t.Fatal(err)
			}
			if tt.old != nil {
				if err := r.Pods.Create(t.Context(), *tt.old); err != nil {
					t.Fatal(err)
				}
			}
			answer, err := r.Pods.Appear(t.Context(), seen, at(5), at(9))
			if !errors.Is(err, tt.err) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			got, err := r.Pods.Get(t.Context(), "w1")
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Error(err, diff)
			}
			if diff := cmp.Diff(got, answer); tt.err == nil && diff != "" {
				t.Errorf("answered otherwise: %s", diff)
			}
		})
	}
}

func TestAWorkerThatAppearsInManyPlacesIsOnePod(t *testing.T) {
	b := newBus(t)
	r, now := open(t, b), time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := r.Pods.Appear(t.Context(), pod.Pod{ID: "w1", Endpoint: "ep"}, now, now); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, err := r.Pods.List(t.Context()); err != nil || len(list) != 1 || list[0].Status != pod.Running {
		t.Errorf("got %+v, %v, want one pod", list, err)
	}
	if _, err := r.Pods.Appear(t.Context(), pod.Pod{ID: "no/id", Endpoint: "ep"}, now, now); err == nil {
		t.Error("got no error for an id that cannot be")
	}
}
