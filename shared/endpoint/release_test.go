package endpoint

import (
	"testing"
	"time"
)

func TestReleased(t *testing.T) {
	old := Endpoint{
		ID: "ep", Version: 4, Release: 2, Env: map[string]string{"A": "1"},
		Fleet: Fleet{Driver: "process", Command: []string{"worker"}, GPUs: 1},
	}
	for name, test := range map[string]struct {
		change func(*Endpoint)
		want   int
	}{
		"nothing":      {func(*Endpoint) {}, 2},
		"the command":  {func(e *Endpoint) { e.Fleet.Command = []string{"worker", "2"} }, 5},
		"the image":    {func(e *Endpoint) { e.Fleet.Image = "worker:2" }, 5},
		"the driver":   {func(e *Endpoint) { e.Fleet.Driver = "docker" }, 5},
		"the GPUs":     {func(e *Endpoint) { e.Fleet.GPUs = 2 }, 5},
		"a variable":   {func(e *Endpoint) { e.Env = map[string]string{"A": "2"} }, 5},
		"the models":   {func(e *Endpoint) { e.Fleet.ModelCache = []string{"a/b"} }, 5},
		"the template": {func(e *Endpoint) { e.Fleet.TemplateID = "t" }, 5},
		"how many":     {func(e *Endpoint) { e.WorkersMax = 9 }, 2},
		"a pause":      {func(e *Endpoint) { e.PausedUntil = time.Now() }, 2},
		"who gets a GPU first": {func(e *Endpoint) {
			e.Fleet.Priority, e.Fleet.MinHold, e.Fleet.MaxSwapWait = 2, time.Minute, time.Minute
		}, 2},
		"what is empty in another way": {func(e *Endpoint) { e.Fleet.GPUTypes = []string{} }, 2},
	} {
		e := old
		e.Version++
		test.change(&e)
		if got := e.Released(old).Release; got != test.want {
			t.Errorf("%s: got release %d, want %d", name, got, test.want)
		}
	}
	if got := (Endpoint{Version: 9}).ReleaseVersion(); got != 1 {
		t.Errorf("before releases were counted: got %d, want 1", got)
	}
}
