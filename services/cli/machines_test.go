package cli_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheModelsOfMachines(t *testing.T) {
	const machines = `[{"id":"m1","driver":"docker","hostname":"box","gpus":[],"models":[{"name":"Qwen/Qwen3-8B","bytes":16381516776},{"name":"gpt2"}]},{"id":"m2","driver":"process","gpus":[],"models":[]}]`
	server := api{"GET /v1/machines": {200, machines}}.start(t, nil)
	for args, want := range map[string]string{
		"machine models": "MACHINE  HOST  MODEL          SIZE\nm1       box   Qwen/Qwen3-8B  15.3 GiB\nm1       box   gpt2           \n",
		"machine list":   "MACHINE  DRIVER   HOST  GPU   NAME  MEMORY  HEALTH  HOLDERS\nm1       docker   box   none                        \nm2       process        none                        \n",
	} {
		got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields(args)...)
		if diff := cmp.Diff(result{out: want}, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", args, diff)
		}
	}
}
