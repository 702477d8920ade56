package registry_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

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
