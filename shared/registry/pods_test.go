package registry_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// The clock of the process that asks may be some milliseconds behind the worker's.
func TestADrainIsOfTheWorkerThatRunsWhateverTheClockOfWhoAsks(t *testing.T) {
	r := running(t, anotherBus(t))
	began := noon.Add(time.Millisecond)
	if err := r.Pods.Create(t.Context(), pod.Pod{ID: "ahead", Name: "ahead", Status: pod.Running, Created: noon, Started: began, Changed: noon}); err != nil {
		t.Fatal(err)
	}
	if p, err := r.Pods.Drain(t.Context(), "ahead", "in the test", noon); err != nil || !p.Drains(began) {
		t.Errorf("got %+v, %v, want its worker asked to drain", p.Drain, err)
	}
}

func TestMoveIsTheTable(t *testing.T) {
	r := running(t, anotherBus(t))
	for name, tc := range map[string]struct {
		from   pod.Status
		locked bool
		by     pod.Trigger
		to     pod.Status
		err    error
	}{
		"a stop":                {pod.Running, false, pod.Stop, pod.Exited, nil},
		"an exit":               {pod.Running, false, pod.Exit, pod.Exited, nil},
		"a start":               {pod.Exited, false, pod.Start, pod.Running, nil},
		"a restart":             {pod.Running, false, pod.Restart, pod.Running, nil},
		"a restart from EXITED": {pod.Exited, false, pod.Restart, pod.Running, nil},
		"a restart of a locked": {pod.Running, true, pod.Restart, pod.Running, pod.ErrLocked},
		"a reset of a locked":   {pod.Exited, true, pod.Restart, pod.Exited, pod.ErrLocked},
		"a restart of gone":     {pod.Terminated, false, pod.Restart, pod.Terminated, pod.ErrConflict},
		"a removal":             {pod.Exited, false, pod.Remove, pod.Terminated, nil},
		"again":                 {pod.Terminated, false, pod.Remove, pod.Terminated, nil},
		"what runs":             {pod.Running, false, pod.Start, pod.Running, nil},
		"what is gone":          {pod.Terminated, false, pod.Start, pod.Terminated, pod.ErrConflict},
		"a stop of a locked":    {pod.Running, true, pod.Stop, pod.Running, pod.ErrLocked},
		"a removal of locked":   {pod.Exited, true, pod.Remove, pod.Exited, pod.ErrLocked},
		"a locked one exits":    {pod.Running, true, pod.Exit, pod.Exited, nil},
		"a locked one starts":   {pod.Exited, true, pod.Start, pod.Running, nil},
		"a stop of what is so":  {pod.Exited, true, pod.Stop, pod.Exited, nil},
	} {
		t.Run(name, func(t *testing.T) {
			id := "p" + time.Now().Format("150405.000000000")[7:]
			before := pod.Pod{ID: id, Name: id, Status: tc.from, Locked: tc.locked, Created: noon, Changed: noon, Change: "before"}
			if err := r.Pods.Create(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			later := noon.Add(time.Minute)
			_, err := r.Pods.Move(t.Context(), id, tc.by, "after", later, nil)
			got, lost := r.Pods.Get(t.Context(), id)
			if !errors.Is(err, tc.err) || lost != nil || got.Status != tc.to {
				t.Fatalf("got %v %v %v, want %v %v", got.Status, err, lost, tc.to, tc.err)
			}
			want := before.Change
			moved := tc.to != tc.from || tc.by == pod.Restart && tc.err == nil
			if moved {
				want = "after"
			}
			if moved != (got.By == tc.by) {
				t.Errorf("got %q as the last trigger, want %q if the status changed: %v", got.By, tc.by, moved)
			}
			if got.Change != want || got.Changed.Equal(later) != (want == "after") || got.Started.Equal(later) != (moved && (tc.by == pod.Start || tc.by == pod.Restart)) {
				t.Errorf("got %q at %v, started %v, want %q", got.Change, got.Changed, got.Started, want)
			}
		})
	}
	if _, err := r.Pods.Move(t.Context(), "nobody", pod.Stop, "", noon, nil); !errors.Is(err, pod.ErrNotFound) {
		t.Errorf("got %v, want pod.ErrNotFound", err)
	}
}

// Of several who do the same one does it; what Move sets besides is not lost
// to those who change something else meanwhile.
func TestMovesSideBySide(t *testing.T) {
	b := newBus(t)
	r, ctx := running(t, b), t.Context()
	if err := r.Pods.Create(ctx, pod.Pod{ID: "p", Status: pod.Running, Changed: noon}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			_, err := r.Pods.Move(ctx, "p", pod.Exit, "gone", noon.Add(time.Duration(i+1)*time.Second), func(p *pod.Pod) error {
				p.Spec.GPUs = 3
				return nil
			})
			if err != nil && !errors.Is(err, registry.ErrConflict) {
				t.Errorf("got %v", err)
			}
		})
		wg.Go(func() {
			_, err := r.Pods.Update(ctx, "p", func(p pod.Pod) (pod.Pod, error) { p.Name = "named"; return p, nil })
			if err != nil && !errors.Is(err, registry.ErrConflict) {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	first, err := r.Pods.Get(ctx, "p")
	if err != nil || first.Status != pod.Exited || first.Name != "named" || first.Spec.GPUs != 3 || first.Change != "gone" {
		t.Fatalf("got %+v %v", first, err)
	}
	again, err := r.Pods.Move(ctx, "p", pod.Exit, "gone again", noon.Add(time.Hour), nil)
	if err != nil || again.Change != "gone" || !again.Changed.Equal(first.Changed) {
		t.Errorf("got %+v %v, want it as it was", again, err)
	}
}

// What a worker wrote when it crashed may hold what it was started with; everybody
// who may look at pods, or at a job, reads why it ended.
func TestWhyAPodEndedIsToldWithoutItsSecrets(t *testing.T) {
	r := running(t, newBus(t))
	made := pod.Pod{ID: "p", Status: pod.Running, Changed: noon, Spec: pod.Spec{Env: map[string]string{"HF_TOKEN": "sesame-open"}}}
	if err := r.Pods.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	got, err := r.Pods.Move(t.Context(), "p", pod.Exit, "code 1: 401 for sesame-open", noon, nil)
	if want := "code 1: 401 for ***"; err != nil || got.Change != want || got.Spec.Env["HF_TOKEN"] != "sesame-open" {
		t.Errorf("got %q %v, want %q, and the pod as it was", got.Change, err, want)
	}
}

func TestThePodsScope(t *testing.T) {
	key := func(texts ...string) registry.Key {
		scopes, err := registry.ParseScopes(texts)
		if err != nil {
			t.Fatal(err)
		}
		return registry.Key{Scopes: scopes}
	}
	for _, tc := range []struct {
		scope       string
		look, other bool
	}{{"pods", true, false}, {"control", true, true}, {"admin:*", false, false}, {"read:*", false, false}} {
		k := key(tc.scope)
		if got := k.Allows("", registry.LookUp); got != tc.look {
			t.Errorf("%s: got %v for a look, want %v", tc.scope, got, tc.look)
		}
		if got := k.Allows("", registry.Control); got != tc.other {
			t.Errorf("%s: got %v for control, want %v", tc.scope, got, tc.other)
		}
	}
	for _, need := range []registry.Permission{registry.Submit, registry.Read, registry.Admin} {
		if key("pods").Allows("ep", need) {
			t.Errorf("pods allows %s", need)
		}
	}
}
