package fleets

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"flightline/shared/api"
	"flightline/shared/pod"
)

// Two autoscalers have a GPU and a model cache each. The first worker of an endpoint keeps
// its model in the cache of one; the next one is started there, although the other has as
// much room and is first by its id.
func TestAutoscalersStartTheNextWorkerWhereTheModelIs(t *testing.T) {
	t.Parallel()
	f := newFleetServer(t)
	dir := t.TempDir()
	for i := range 2 {
		gpus := filepath.Join(dir, fmt.Sprintf("gpus%d.json", i))
		text := fmt.Sprintf(`[{"uuid":"GPU-%d","vendor":"nvidia","name":"card %d","memoryMb":24576}]`, i, i)
		if err := os.WriteFile(gpus, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f.scaler(fmt.Sprint("fleet", i), "--gpus", gpus, "--model-cache-folder", filepath.Join(dir, fmt.Sprint("models", i)))
	}
	var machines []api.MachineInventory
	f.await("two machines", func() string {
		f.rest(http.MethodGet, "/v1/machines", nil, &machines)
		if len(machines) == 2 {
			return ""
		}
		return fmt.Sprintf("%+v", machines)
	})
	last := machines[1]
	f.endpoint("ep", map[string]any{
		"workersMax": 1, "gpuCount": 1, "gpuTypeIds": []string{last.GPUs[0].Name}, "modelCache": []string{"m/n"},
		"env": map[string]string{asFleetWorker: "yes", "FLEET_TEST_MODEL": "m/n"},
	})
	on := func(missing int) {
		t.Helper()
		for worker := range f.completed("ep", f.submit("ep", 1, 10, nil)) {
			p, err := f.registry.Pods.Get(t.Context(), worker)
			if err != nil || p.MachineID != last.ID || len(p.MissingModels) != missing {
				t.Errorf("got %s on %s without %v, %v, want it on %s without %d models", worker, p.MachineID, p.MissingModels, err, last.ID, missing)
			}
		}
	}
	on(1)
	f.await("the model in the list of machines", func() string {
		f.rest(http.MethodGet, "/v1/machines", nil, &machines)
		if len(machines) == 2 && len(machines[0].Models) == 0 && len(pod.MissingModels([]string{"m/n"}, machines[1].Models)) == 0 {
			return ""
		}
		return fmt.Sprintf("%+v", machines)
	})
	f.size("ep", 0)
	f.await("no claim", func() string {
		claims, err := f.registry.GPUs.Claims(t.Context())
		if err != nil || len(claims) > 0 {
			return fmt.Sprint(claims, err)
		}
		return ""
	})
	f.rest(http.MethodPatch, "/v1/endpoints/ep", map[string]any{"gpuTypeIds": []string{}}, nil)
	on(0)
}
