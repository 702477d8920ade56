package registry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// Whatever a worker writes of a pod, no driver sees a pod to run in it, and it
// hides none that a driver runs.
func TestNothingThatAWorkerWritesIsADriversPod(t *testing.T) {
	b := newBus(t)
	kv, err := b.JS.KeyValue(t.Context(), streams.BucketWorkerPods)
	if err != nil {
		t.Fatal(err)
	}
	r, now := open(t, b), time.Now().UTC()
	driven := pod.Pod{ID: "real", Endpoint: "ep", Status: pod.Running, Driver: pod.Process, Created: now, Changed: now, Expires: true}
	if err := r.Pods.Create(t.Context(), driven); err != nil {
		t.Fatal(err)
	}
	const forged = `{"id":"x","endpoint":"other","status":"RUNNING","driver":"process","owner":"key_1","cut":["j"],"gone":"2026-11-30T20:00:00Z","spec":{"command":["id"]}}`
	for key, value := range map[string]string{
		"ep.evil": forged, "ep.real": forged, "ep.odd": strings.Replace(forged, "RUNNING", "BOILING", 1), "ep.garbage": "{",
	} {
		if _, err := kv.PutString(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	spec := pod.Spec{Command: []string{"id"}}
	want := []pod.Pod{
		{ID: "evil", Endpoint: "ep", Status: pod.Running, Spec: spec},
		{ID: "odd", Endpoint: "ep", Status: pod.Exited, Spec: spec},
		driven,
	}
	for name, reader := range map[string]*registry.Registry{"cold": r, "warm": running(t, b)} {
		testenv.Eventually(t, name+" lists them", func() bool {
			got, err := reader.Pods.List(t.Context())
			return err == nil && cmp.Equal(want, got)
		})
		for _, p := range want {
			if got, err := reader.Pods.Get(t.Context(), p.ID); err != nil || !cmp.Equal(p, got) {
				t.Errorf("%s: got %+v, %v, want %+v", name, got, err, p)
			}
		}
	}
	changed, err := r.Pods.Update(t.Context(), "evil", func(p pod.Pod) (pod.Pod, error) {
		p.Name = "renamed"
		return p, nil
	})
	if err != nil || changed.Driver != "" || changed.Name != "renamed" {
		t.Errorf("got %+v, %v, want it renamed, and no driver's", changed, err)
	}
}

// Two endpoints may have workers of one id: what happens to one does not happen
// to the other.
func TestPodsOfOneIDAtTwoEndpoints(t *testing.T) {
	r, now := open(t, newBus(t)), time.Now()
	for _, endpoint := range []string{"a", "b"} {
		if _, err := r.Pods.Appear(t.Context(), pod.Pod{ID: "w", Endpoint: endpoint}, now, now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Pods.At("a").Move(t.Context(), "w", pod.Exit, "it fell silent", now, nil); err != nil {
		t.Fatal(err)
	}
	for endpoint, want := range map[string]pod.Status{"a": pod.Exited, "b": pod.Running} {
		if p, err := r.Pods.At(endpoint).Get(t.Context(), "w"); err != nil || p.Endpoint != endpoint || p.Status != want {
			t.Errorf("got %+v, %v, want the pod of %s, %s", p, err, endpoint, want)
		}
	}
	if _, err := r.Pods.At("c").Get(t.Context(), "w"); !errors.Is(err, pod.ErrNotFound) {
		t.Errorf("got %v, want pod.ErrNotFound", err)
	}
	b, err := r.Pods.At("b").Get(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Pods.Forget(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if p, err := r.Pods.Get(t.Context(), "w"); err != nil || p.Endpoint != "a" { // though b's deletion was later
		t.Errorf("got %+v, %v, want the pod of a", p, err)
	}
}

// A driver's worker reads in its own record that it is to drain, also if it
// begins later.
func TestADriversWorkerIsToldToDrain(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"told before it begins": true, "told while it runs": false} {
		t.Run(name, func(t *testing.T) {
			b := newBus(t)
			r, now := open(t, b), time.Now().UTC()
			worker, err := registry.NewForWorker(t.Context(), b.JS, nil)
			if err != nil {
				t.Fatal(err)
			}
			driven := pod.Pod{ID: "w", Endpoint: "ep", Status: pod.Running, Driver: pod.Process, Created: now, Changed: now}
			if err := r.Pods.Create(t.Context(), driven); err != nil {
				t.Fatal(err)
			}
			began := now.Add(time.Minute)
			appear := func() {
				if _, err := worker.Pods.Appear(t.Context(), pod.Pod{ID: "w", Endpoint: "ep"}, began, began); err != nil {
					t.Fatal(err)
				}
			}
			if !before {
				appear()
			}
			for range 2 {
				if _, err := r.Pods.Drain(t.Context(), "w", "scale-in", now); err != nil {
					t.Fatal(err)
				}
			}
			if before {
				appear()
			}
			if own, err := worker.Pods.Get(t.Context(), "ep", "w"); err != nil || !own.Drains(began) || own.Drain.Why != "scale-in" {
				t.Errorf("got %+v, %v, want it to drain", own, err)
			}
			gone, err := r.Pods.Move(t.Context(), "w", pod.Remove, "scale-in", now, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Pods.Forget(t.Context(), gone); err != nil {
				t.Fatal(err)
			}
			if list, err := r.Pods.List(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("got %+v, %v, want nothing left of it", list, err)
			}
		})
	}
}
