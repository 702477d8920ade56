package fleets

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flightline/shared/pod"
	"flightline/shared/testenv/program"
)

// podView is what the API says of a pod.
type podView struct {
	ID, DesiredStatus, LastStatusChange, MachineID string
}

func (f *fleetSite) pod(id string) (p podView) {
	f.t.Helper()
	f.rest(http.MethodGet, "/v1/pods/"+id, nil, &p)
	return p
}

// TestAPodThatWasAskedForRunsStopsAndGoes is about pods that work for no
// endpoint: requests say what they should be, an autoscaler does it.
func TestAPodThatWasAskedForRunsStopsAndGoes(t *testing.T) {
	t.Parallel()
	f, d := fleetDev(t)
	note := filepath.Join(t.TempDir(), "pid")
	var made podView
	f.rest(http.MethodPost, "/v1/pods", map[string]any{
		"driver": "process", "name": "beside", "env": map[string]string{"NOTE": note},
		"dockerStartCmd": []string{"sh", "-c", `echo $$ >"$NOTE.new" && mv "$NOTE.new" "$NOTE" && while :; do sleep 1; done`},
	}, &made)
	// runs waits until it does, and returns its process.
	runs := func() (process string) {
		f.await("pod "+made.ID+" runs", func() string {
			pid, err := os.ReadFile(note)
			process = "/proc/" + strings.TrimSpace(string(pid))
			if p := f.pod(made.ID); err != nil || p.DesiredStatus != "RUNNING" || p.MachineID == "" {
				return fmt.Sprintf("%+v, %v", p, err)
			}
			return ""
		})
		return process
	}
	gone := func(process string) {
		f.await(process+" is gone", func() string {
			if _, err := os.Stat(process); err == nil {
				return "it is there"
			}
			return ""
		})
		if err := os.Remove(note); err != nil {
			t.Fatal(err)
		}
	}
	first := runs()
	f.rest(http.MethodPost, "/v1/pods/"+made.ID+"/stop", nil, nil)
	gone(first)
	if p := f.pod(made.ID); p.DesiredStatus != "EXITED" || !strings.HasPrefix(p.LastStatusChange, "Stopped by request") {
		t.Errorf("stopped: got %+v", p)
	}
	f.rest(http.MethodPost, "/v1/pods/"+made.ID+"/start", nil, nil)
	second := runs()
	f.rest(http.MethodDelete, "/v1/pods/"+made.ID, nil, nil)
	gone(second)
	if p := f.pod(made.ID); p.DesiredStatus != "TERMINATED" || first == second {
		t.Errorf("deleted: got %+v, %s after %s", p, second, first)
	}

	var brief podView
	f.rest(http.MethodPost, "/v1/pods", map[string]any{
		"driver": "process", "dockerStartCmd": []string{"sh", "-c", "echo no such data >&2; exit 7"},
	}, &brief)
	f.await("the end of a pod that ends by itself", func() string {
		p, err := f.registry.Pods.Get(t.Context(), brief.ID)
		if err == nil && p.Status == pod.Exited && strings.Contains(p.Change, "code 7") && strings.Contains(p.Change, "no such data") {
			return ""
		}
		return fmt.Sprintf("%s (%s), %v", p.Status, p.Change, err)
	})
	d.Stop(program.StopWithin)
}
