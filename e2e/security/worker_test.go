package security

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"flightline/shared/testenv/program"
	"flightline/streams"
)

// A pod's record is a command that an autoscaler runs. What the user of workers
// or of gateways writes is refused, or runs nowhere.
func TestWhatAWorkerWritesOfAPodRunsNowhere(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.as(streams.RoleControl)
	g.Environ = append(g.Environ, "FLIGHTLINE_CREATE_STREAMS=true", "FLIGHTLINE_BOOTSTRAP_KEY_FILE="+filepath.Join(g.setup, "control", "api-key"))
	control := g.Start("serve", "control")
	base := control.Line(program.Ready)
	g.as(streams.RoleAutoscaler)
	g.Environ = append(g.Environ, "FLIGHTLINE_BOOTSTRAP_KEY_FILE=")
	autoscaler := g.Start("serve", "autoscaler", "--drivers", "process", "--fleet-folder", filepath.Join(g.Dir, "machine"), "--gateway-url", base)
	autoscaler.Line(program.Ready)

	loot := filepath.Join(g.Dir, "loot")
	record := `{"id":"evil","status":"RUNNING","driver":"process","created":"2026-01-02T03:04:05Z","changed":"2026-01-02T03:04:05Z",` +
		`"spec":{"command":["sh","-c","id >` + loot + `"]}}`
	for _, role := range []streams.Role{streams.RoleWorker, streams.RoleGateway} {
		publish := func(subject string) error {
			return g.try(role, func(nc *nats.Conn) error { return nc.Publish(subject, []byte(record)) })
		}
		if err := publish("$KV." + streams.BucketPods + ".evil"); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s writes a driver's pod: got %v, want a refusal", role, err)
		}
		if err := publish("$KV." + streams.BucketWorkerPods + ".mine.evil"); err != nil {
			t.Errorf("%s writes a pod of its own: got %v", role, err)
		}
	}

	// An autoscaler that has run what came later has looked at all of it.
	ran := filepath.Join(g.Dir, "ran")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/pods",
		strings.NewReader(`{"driver":"process","dockerStartCmd":["sh","-c","id >`+ran+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.secret("control", "api-key"))
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusCreated {
		t.Fatalf("got %d, %v, want a pod", res.StatusCode, err)
	}
	g.Eventually("the pod that was asked for ran", func() bool {
		_, err := os.Stat(ran)
		return err == nil
	})
	if _, err := os.Stat(loot); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want nothing run", err)
	}
}
