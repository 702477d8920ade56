package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/testenv"
)

// patience bounds every wait for a fact.
const patience = 2 * time.Minute

// rig is a driver and how it runs testdata/pod with arguments.
type rig struct {
	driver Driver
	spec   func(args ...string) pod.Spec
}

func (r rig) start(t *testing.T, id string, args ...string) {
	t.Helper()
	err := r.driver.Start(t.Context(), Start{PodID: id, Endpoint: "ep", Spec: r.spec(args...), Env: map[string]string{"GREETING": "hello"}})
	if err != nil {
		t.Fatalf("start %s: %v", id, err)
	}
}

// find returns the pod as the driver lists it.
func (r rig) find(t *testing.T, id string) (Instance, bool) {
	t.Helper()
	all, err := r.driver.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var found []Instance
	for _, x := range all {
		if x.PodID == id {
			found = append(found, x)
		}
	}
	if len(found) > 1 {
		t.Fatalf("got %+v, want one %s", found, id)
	}
	if len(found) == 0 {
		return Instance{}, false
	}
	return found[0], true
}

// ended waits until the pod has.
func (r rig) ended(t *testing.T, id string) Instance {
	t.Helper()
	var x Instance
	testenv.Eventually(t, id+" ended", func() bool {
		var found bool
		x, found = r.find(t, id)
		return found && !x.Running
	})
	return x
}

func (r rig) stop(t *testing.T, id string, grace time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.driver.Stop(ctx, id, grace); err != nil {
		t.Fatalf("stop %s: %v", id, err)
	}
}

// conform is what every driver does.
var conform = map[string]func(*testing.T, rig){
	"words and variables are no text for a shell": func(t *testing.T, r rig) {
		t.Helper()
		note := filepath.Join(t.TempDir(), "note")
		for i, text := range []string{"$(touch " + note + ")", "`touch " + note + "`", "; touch " + note, "| tee " + note, "--privileged", "-v /:/host", "%s${IFS}'\"\\"} {
			id := fmt.Sprint("words", i)
			r.start(t, id, "exit", "3", text)
			if x := r.ended(t, id); x.Code != 3 || x.Reason != text {
				t.Errorf("got %d %q, want the word as it is: %q", x.Code, x.Reason, text)
			}
		}
		err := r.driver.Start(t.Context(), Start{PodID: "env", Spec: r.spec("env"), Env: map[string]string{
			"A": "$(touch " + note + ")", "B;touch " + note: "x", podVariable: "another", fleetVariable: "another",
		}})
		if err != nil {
			t.Fatal(err)
		}
		got := r.ended(t, "env").Reason
		if !strings.Contains(got, "A=$(touch "+note+")\n") || r.driver.Name() == pod.Process && strings.Contains(got, "=another") {
			t.Errorf("got %q, want the variables as they are, but none by which the driver knows its pods", got)
		}
		if _, err := os.Stat(note); !os.IsNotExist(err) {
			t.Errorf("got %v: a shell has read it", err)
		}
	},
	"a pod runs until it is stopped": func(t *testing.T, r rig) {
		t.Helper()
		r.start(t, "p1", "run")
		x, found := r.find(t, "p1")
		if !found || !x.Running || x.Endpoint != "ep" || x.Started.IsZero() {
			t.Fatalf("got %+v %v, want it running", x, found)
		}
		r.stop(t, "p1", patience)
		r.ended(t, "p1")
	},
	"a start of what runs changes nothing": func(t *testing.T, r rig) {
		t.Helper()
		r.start(t, "p1", "run")
		before, _ := r.find(t, "p1")
		r.start(t, "p1", "run")
		after, _ := r.find(t, "p1")
		if !after.Running || !after.Started.Equal(before.Started) {
			t.Errorf("got %+v, want %+v", after, before)
		}
	},
	"it keeps which life it is": func(t *testing.T, r rig) {
		t.Helper()
		for life, args := range [][]string{{"exit", "0"}, {"run"}} {
			if err := r.driver.Start(t.Context(), Start{PodID: "p1", Life: life + 1, Spec: r.spec(args...)}); err != nil {
				t.Fatal(err)
			}
			if life == 0 {
				r.ended(t, "p1")
			}
			if x, found := r.find(t, "p1"); !found || x.Life != life+1 {
				t.Errorf("got %+v %v, want life %d", x, found, life+1)
			}
		}
	},
	"starts at once start one": func(t *testing.T, r rig) {
		t.Helper()
		var starts sync.WaitGroup
		for range 8 {
			starts.Go(func() {
				if err := r.driver.Start(t.Context(), Start{PodID: "p1", Spec: r.spec("run")}); err != nil {
					t.Errorf("start: %v", err)
				}
			})
		}
		starts.Wait()
		if x, found := r.find(t, "p1"); !found || !x.Running {
			t.Errorf("got %+v %v, want it running", x, found)
		}
	},
	"the exit code and the end of stderr tell how it ended": func(t *testing.T, r rig) {
		t.Helper()
		r.start(t, "p1", "exit", "7", "no such model")
		x := r.ended(t, "p1")
		if x.Code != 7 || x.Reason != "no such model" || x.Started.IsZero() {
			t.Errorf("got %+v, want code 7", x)
		}
		r.start(t, "p2", "exit", "0", "done")
		if x := r.ended(t, "p2"); x.Code != 0 || x.Reason != "done" {
			t.Errorf("got %+v, want code 0", x)
		}
	},
	"no part of a secret is in the end of stderr": func(t *testing.T, r rig) {
		t.Helper()
		secret := "s3cr3t-abcdefghijklmnopqrstuvwxyz-0123456789"
		for i, after := range []int{tailBytes - 30, tailBytes + 1, 2 * tailBytes} { // bytes after the middle of the secret
			id := fmt.Sprint("p", i)
			err := r.driver.Start(t.Context(), Start{PodID: id, Spec: r.spec("exit", "3", "password is "+secret+strings.Repeat(" x", after/2)), Env: map[string]string{"DB_PASSWORD": secret}})
			if err != nil {
				t.Fatal(err)
			}
			if x := r.ended(t, id); strings.Contains(x.Reason, secret[len(secret)-4:]) || len(x.Reason) < tailBytes/2 || len(x.Reason) > tailBytes {
				t.Errorf("got %d bytes %.60q, want the end without the secret", len(x.Reason), x.Reason)
			}
		}
	},
	"what ended starts again": func(t *testing.T, r rig) {
		t.Helper()
		r.start(t, "p1", "exit", "7", "gone")
		first := r.ended(t, "p1")
		r.start(t, "p1", "run")
		x, found := r.find(t, "p1")
		if !found || !x.Running || x.Code != 0 || x.Reason != "" || !x.Started.After(first.Started) {
			t.Errorf("got %+v %v, want it running again", x, found)
		}
	},
	"what does not end in time is killed": func(t *testing.T, r rig) {
		t.Helper()
		r.start(t, "p1", "stubborn")
		r.stop(t, "p1", time.Second)
		if x := r.ended(t, "p1"); x.Code != -1 {
			t.Errorf("got %+v, want code -1", x)
		}
	},
	"the environment is what it was started with": func(t *testing.T, r rig) {
		t.Helper()
		r.start(t, "p1", "env")
		if x := r.ended(t, "p1"); !strings.Contains("\n"+x.Reason+"\n", "\nGREETING=hello\n") {
			t.Errorf("got %q, want GREETING in it", x.Reason)
		}
	},
	"to stop or forget what never was is no error": func(t *testing.T, r rig) {
		t.Helper()
		r.stop(t, "nobody", time.Second)
		if err := r.driver.Forget(t.Context(), "nobody"); err != nil {
			t.Error(err)
		}
		r.start(t, "p1", "exit", "0", "")
		r.ended(t, "p1")
		r.stop(t, "p1", time.Second)
	},
	"what ended is listed until it is forgotten": func(t *testing.T, r rig) {
		t.Helper()
		r.start(t, "p1", "run")
		if err := r.driver.Forget(t.Context(), "p1"); !errors.Is(err, pod.ErrConflict) {
			t.Errorf("forget what runs: got %v, want ErrConflict", err)
		}
		r.stop(t, "p1", patience)
		for range 2 {
			if err := r.driver.Forget(t.Context(), "p1"); err != nil {
				t.Fatal(err)
			}
		}
		if x, found := r.find(t, "p1"); found {
			t.Errorf("got %+v, want it forgotten", x)
		}
	},
	"what cannot run is refused": func(t *testing.T, r rig) {
		t.Helper()
		spec := r.spec("run")
		spec.Entrypoint, spec.Command = nil, []string{"/no/such/program"}
		if err := r.driver.Start(t.Context(), Start{PodID: "p1", Spec: spec}); !errors.Is(err, pod.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
		if x, _ := r.find(t, "p1"); x.Running {
			t.Errorf("got %+v, want nothing running", x)
		}
		if err := r.driver.Start(t.Context(), Start{PodID: "../p1", Spec: r.spec("run")}); !errors.Is(err, pod.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid for the id", err)
		}
	},
	"the machine has one id": func(t *testing.T, r rig) {
		t.Helper()
		id, facts, err := r.driver.Machine(t.Context())
		again, _, _ := r.driver.Machine(t.Context())
		if err != nil || id == "" || id != again || facts.VCPUs <= 0 || facts.MemoryGB <= 0 {
			t.Errorf("got %q, %q, %+v, %v", id, again, facts, err)
		}
	},
}
