//go:build nvml && cgo && linux

package host

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"flightline/shared/pod"
)

func TestNVMLReadsAnA100(t *testing.T) {
	got, driver := readNVML(t.Context(), dgxa100.New(), slog.New(slog.DiscardHandler))
	if len(got) != 8 || driver == "" {
		t.Fatalf("got %d GPUs, driver %q, want the 8 of the mock", len(got), driver)
	}
	seen := map[string]bool{}
	for _, g := range got {
		if g.Vendor != pod.NVIDIA || g.Name == "" || g.MemoryMB == 0 || g.Driver != driver || g.CUDA == "" || seen[g.UUID] {
			t.Errorf("got %+v", g)
		}
		seen[g.UUID] = true
	}
}

func TestNVMLSaysWhichCardIsLost(t *testing.T) {
	server := dgxa100.New()
	lost, _ := server.DeviceGetHandleByIndex(3)
	lost.(*dgxa100.Device).GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	got, _ := readNVML(t.Context(), server, slog.New(slog.DiscardHandler))
	for i, g := range got {
		if (g.Health != "") != (i == 3) {
			t.Errorf("GPU %d: got health %q", i, g.Health)
		}
	}
}

// The mock of an A100 has no events, so the test gives it some: an error of an application, a
// failed wait, and an error of the card.
func TestNVMLNotesXIDErrors(t *testing.T) {
	server := dgxa100.New()
	card, _ := server.DeviceGetHandleByIndex(3)
	waits := []struct {
		event nvml.EventData
		code  nvml.Return
	}{
		{code: nvml.ERROR_TIMEOUT},
		{event: nvml.EventData{Device: card, EventType: nvml.EventTypeXidCriticalError, EventData: 31}, code: nvml.SUCCESS},
		{event: nvml.EventData{Device: card, EventType: nvml.EventTypeSingleBitEccError, EventData: 1}, code: nvml.SUCCESS},
		{code: nvml.ERROR_UNKNOWN},
		{event: nvml.EventData{Device: card, EventType: nvml.EventTypeXidCriticalError, EventData: 79}, code: nvml.SUCCESS},
	}
	ctx, cancel := context.WithCancel(t.Context())
	freed := false
	set := &mock.EventSet{
		WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			next := waits[0]
			waits = waits[1:]
			return next.event, next.code
		},
		FreeFunc: func() nvml.Return { freed = true; return nvml.SUCCESS },
	}
	server.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return set, nvml.SUCCESS }
	for i, d := range server.Devices {
		d.(*dgxa100.Device).RegisterEventsFunc = func(events uint64, _ nvml.EventSet) nvml.Return {
			if events != nvml.EventTypeXidCriticalError || i == 0 {
				return nvml.ERROR_NOT_SUPPORTED
			}
			return nvml.SUCCESS
		}
	}
	var record xidRecord
	var got []uint64
	watchNVML(ctx, server, slog.New(slog.DiscardHandler), func(uuid string, code uint64) {
		got = append(got, code)
		if record.note(uuid, code, time.Now()) {
			cancel()
		}
	})
	cards, _ := readNVML(t.Context(), server, slog.New(slog.DiscardHandler))
	cards = record.apply(cards, time.Now())
	if len(got) != 2 || got[0] != 31 || got[1] != 79 || !freed || cards[3].Health != "XID 79: GPU has fallen off the bus" || cards[2].Health != "" {
		t.Errorf("got %v, freed %v, %+v", got, freed, cards[3])
	}
}
