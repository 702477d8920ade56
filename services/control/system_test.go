package control

import (
	"context"
	"strings"
	"testing"
	"time"

	"flightline/shared/api"
	"flightline/shared/bus"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestTheSystemHasItsProcesses(t *testing.T) {
	s := start(t)
	s.registry.Instances.SetProgram("v1", "box")
	testenv.Background(t, func(ctx context.Context) error {
		return s.registry.Instances.Announce(ctx, registry.Instance{ID: "i1", Role: "api"})
	})
	testenv.Eventually(t, "the instance is listed", func() bool {
		list, err := s.registry.Instances.List(t.Context())
		return err == nil && len(list) == 1
	})
	var asked string
	s.service.cfg.Version = "v2"
	s.system = func(_ context.Context, stream string) (api.System, error) {
		if asked = stream; stream == "away" {
			return api.System{}, bus.ErrUnavailable
		}
		return api.System{At: "2026-11-25T12:00:00.000Z", Streams: api.Streams{List: []api.Stream{}}, Consumers: api.Consumers{List: []api.Consumer{}}, Findings: []api.Finding{}}, nil
	}
	got := s.do("GET", "/system?stream=JOBS_a", "")
	head := `{"at":"2026-11-25T12:00:00.000Z","version":"v2","storage":{"usedBytes":0},"streams":{"count":0,"messages":0,"bytes":0,"matched":0,"list":[]},"consumers":{"count":0,"list":[]},` +
		`"processes":[{"id":"i1","role":"api","version":"v1","hostname":"box","startedAt":"`
	if got.status != 200 || asked != "JOBS_a" || !strings.HasPrefix(got.raw, head) {
		t.Errorf("asked %q, got %d %s\nwant %s", asked, got.status, got.raw, head)
	}
	for path, status := range map[string]int{"/system?stream=away": 503, "/system?stream=" + strings.Repeat("x", 256): 400} {
		if got := s.do("GET", path, ""); got.status != status {
			t.Errorf("%.40s: got %d %s, want %d", path, got.status, got.raw, status)
		}
	}
}

func TestProcessesAreByRoleAndID(t *testing.T) {
	t.Parallel()
	got := processesOf([]registry.Instance{{ID: "b", Role: "api"}, {ID: "c", Role: "webhook", Version: "v1", Started: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}, {ID: "a", Role: "api"}})
	want := []api.Process{{ID: "a", Role: "api"}, {ID: "b", Role: "api"}, {ID: "c", Role: "webhook", Version: "v1", StartedAt: "2026-01-31T12:00:00.000Z"}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
