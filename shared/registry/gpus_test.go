package registry_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
)

func holder(pod string, share int) registry.GPUHolder {
	return registry.GPUHolder{Pod: pod, Machine: "m", Share: share}
}

func TestAGPUIsGivenOnce(t *testing.T) {
	r := open(t, newBus(t))
	var all sync.WaitGroup
	var won atomic.Int32
	for i := range 8 {
		all.Go(func() {
			err := r.GPUs.Claim(t.Context(), "GPU-1", holder(fmt.Sprint("p", i), pod.WholeGPU))
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, registry.ErrTaken) && !errors.Is(err, registry.ErrConflict) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	claims, err := r.GPUs.Claims(t.Context())
	if err != nil || won.Load() != 1 || len(claims["GPU-1"].Holders) != 1 {
		t.Errorf("%d won, got %+v, %v; want one holder", won.Load(), claims, err)
	}
}

func TestAGPUIsSharedUpToTheWhole(t *testing.T) {
	r := open(t, newBus(t))
	claim := func(pod string, share int) error { return r.GPUs.Claim(t.Context(), "GPU-1", holder(pod, share)) }
	for _, step := range []struct {
		pod   string
		share int
		want  error
	}{
		{"a", 50, nil}, {"b", 25, nil}, {"a", 50, nil}, // a has it already
		{"c", 50, registry.ErrTaken}, {"c", 25, nil}, {"d", 1, registry.ErrTaken}, {"d", 0, registry.ErrInvalid}, {"d", 101, registry.ErrInvalid},
	} {
		if err := claim(step.pod, step.share); !errors.Is(err, step.want) {
			t.Errorf("%s claims %d: got %v, want %v", step.pod, step.share, err, step.want)
		}
	}
	for _, pod := range []string{"b", "b", "nobody"} { // it may run twice
		if err := r.GPUs.Release(t.Context(), "GPU-1", pod, "m"); err != nil {
			t.Error(err)
		}
	}
	if err := r.GPUs.Release(t.Context(), "GPU-1", "a", "another"); err != nil {
		t.Error(err)
	}
	claims, err := r.GPUs.Claims(t.Context())
	if got := claims["GPU-1"]; err != nil || got.Used() != 75 {
		t.Errorf("got %+v, %v, want 75 used", got, err)
	}
}

func TestAPodGivesBackAndRegainsAShare(t *testing.T) {
	r := open(t, newBus(t))
	wakes := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	claim := func(pod string, share int, woken time.Time) error {
		h := holder(pod, share)
		h.Woken = woken
		return r.GPUs.Claim(t.Context(), "GPU-1", h)
	}
	shrink := func(pod string, share int) error { return r.GPUs.Shrink(t.Context(), "GPU-1", pod, "m", share) }
	for i, step := range []struct{ err, want error }{
		{claim("a", 100, time.Time{}), nil},
		{shrink("a", 5), nil},
		{shrink("a", 5), nil},
		{shrink("a", 50), nil}, // that is more
		{shrink("nobody", 0), nil},
		{claim("b", 95, time.Time{}), nil},
		{claim("a", 100, wakes), registry.ErrTaken},
		{shrink("b", 0), nil},
		{claim("a", 100, wakes), nil},
		{claim("a", 100, wakes), nil},
		{claim("b", 95, wakes), registry.ErrTaken},
		{claim("a", 50, wakes.Add(1)), nil}, // it keeps what it has
	} {
		if !errors.Is(step.err, step.want) {
			t.Errorf("step %d: got %v, want %v", i, step.err, step.want)
		}
	}
	claims, err := r.GPUs.Claims(t.Context())
	if got := claims["GPU-1"]; err != nil || got.Used() != 100 || len(got.Holders) != 2 || !got.Holders[0].Woken.Equal(wakes.Add(1)) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Placement goes by the same.
func TestAWorkerThatSleepsAndKeepsNothingLeavesAGPUOnProbationFree(t *testing.T) {
	noon := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	r := open(t, newBus(t))
	for keeps, want := range map[int]error{0: nil, 5: registry.ErrTaken} {
		uuid := fmt.Sprint("GPU-", keeps)
		late := holder("b", 50)
		late.Since = noon.Add(time.Hour)
		err := r.GPUs.Claim(t.Context(), uuid, holder("asleep", pod.WholeGPU))
		if err == nil {
			err = r.GPUs.Shrink(t.Context(), uuid, "asleep", "m", keeps)
		}
		if err == nil {
			_, _, err = r.GPUs.Quarantine(t.Context(), uuid, registry.Quarantine{Since: noon}, func(int) time.Duration { return time.Minute })
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := r.GPUs.Claim(t.Context(), uuid, late); !errors.Is(err, want) {
			t.Errorf("it keeps %d: got %v, want %v", keeps, err, want)
		}
	}
}

func TestNoPodGetsAQuarantinedGPUUntilItsDeadline(t *testing.T) {
	r := open(t, newBus(t))
	noon := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	length := func(count int) time.Duration { return time.Duration(count) * 10 * time.Minute }
	claim := func(pod string, minutes int, want error) {
		t.Helper()
		h := holder(pod, 50)
		h.Since = at(minutes)
		if err := r.GPUs.Claim(t.Context(), "GPU-1", h); !errors.Is(err, want) {
			t.Errorf("%s claims at %d min: got %v, want %v", pod, minutes, err, want)
		}
	}
	quarantine := func(by string, minutes, count, until int, begun bool) {
		t.Helper()
		q, got, err := r.GPUs.Quarantine(t.Context(), "GPU-1", registry.Quarantine{Machine: "m", By: by, Since: at(minutes)}, length)
		if err != nil || q.Count != count || !q.Until.Equal(at(until)) || got != begun {
			t.Errorf("at %d min: got %+v, %v, %v; want number %d until %d min, begun %v", minutes, q, got, err, count, until, begun)
		}
	}
	claim("a", 0, nil)
	quarantine("", 0, 1, 10, true)
	quarantine("", 1, 1, 10, false) // of two autoscalers one was faster
	claim("a", 1, nil)              // it has it
	claim("b", 1, registry.ErrQuarantined)
	claim("b", 10, registry.ErrTaken) // on probation one at a time
	if err := r.GPUs.Release(t.Context(), "GPU-1", "a", "m"); err != nil {
		t.Fatal(err)
	}
	claim("b", 10, nil)
	claim("c", 10, registry.ErrTaken)
	quarantine("", 12, 2, 32, true) // b failed
	if err := r.GPUs.Restore(t.Context(), "GPU-1", at(0), at(33), false); err != nil {
		t.Fatal(err)
	}
	claim("c", 13, registry.ErrQuarantined) // the one that was ended is another one
	if err := r.GPUs.Restore(t.Context(), "GPU-1", at(12), at(33), false); err != nil {
		t.Fatal(err)
	}
	claim("c", 34, nil)
	quarantine("", 40, 3, 70, true) // soon after
	if err := r.GPUs.Restore(t.Context(), "GPU-1", at(40), at(71), false); err != nil {
		t.Fatal(err)
	}
	quarantine("", 71+25*60, 1, 71+25*60+10, true) // a day later
	quarantine("key", 72+25*60, 1, 82+25*60, true) // by request
	for range 2 {
		if err := r.GPUs.Restore(t.Context(), "GPU-1", at(72+25*60), at(73+25*60), true); err != nil {
			t.Fatal(err)
		}
	}
	quarantine("", 74+25*60, 1, 84+25*60, true)
	if _, _, err := r.GPUs.Quarantine(t.Context(), "no UUID", registry.Quarantine{Since: noon}, length); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}
