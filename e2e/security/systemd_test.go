package security

import (
	"os"
	"strings"
	"testing"
	"time"

	"flightline/shared/testenv/program"
	"flightline/streams"
)

// unit is a file of docs/systemd: the values of each key, in their order.
type unit map[string][]string

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	text, err := os.ReadFile("../../docs/systemd/" + name)
	if err != nil {
		t.Fatal(err)
	}
	u := unit{}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
			u[key] = append(u[key], value)
		}
	}
	return u
}

// The unit starts all roles with what nats-config wrote. A stop has the time that it asks for.
func TestTheUnitOfSystemdStartsAllRoles(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	g := newGuarded(t)
	u := readUnit(t, "flightline.service")
	here := strings.NewReplacer("nats://127.0.0.1:4222", g.url, "/etc/flightline", g.setup, "/usr/local/bin/flightline ", "")
	for _, line := range u["Environment"] {
		g.Environ = append(g.Environ, strings.Fields(here.Replace(line))...)
	}
	args := strings.Fields(here.Replace(u["ExecStart"][0]))
	d := g.Start(args...)
	g.Environ = append(g.Environ, "FLIGHTLINE_URL="+d.Line(program.Ready), "FLIGHTLINE_API_KEY="+g.secret("control", "api-key"))
	g.OK("endpoint", "create", "upper", "--workers-max", "1", "--env", "NATS_URL="+g.url, "--env", "FLIGHTLINE_NATS_USER=worker",
		"--env", "FLIGHTLINE_NATS_PASSWORD="+g.password(streams.RoleWorker), "--env", "FLIGHTLINE_NATS_INBOX_PREFIX="+streams.InboxPrefix(streams.RoleWorker),
		"--", program.Build(t, "flightline/services/flightline"), "worker", "upper", "--", "tr", "a-z", "A-Z")
	if got := g.OK("run", "upper", `{"input":{"text":"systemd"}}`, "--wait", "-o", "json"); !strings.Contains(got, "SYSTEMD") {
		t.Errorf("a worker of the unit: got %s", got)
	}
	g.OK("doctor")
	shutdown := durationOf(t, args[len(args)-1])
	if got := durationOf(t, u["TimeoutStopSec"][0]); got < shutdown+30*time.Second || u["KillMode"][0] != "mixed" {
		t.Errorf("TimeoutStopSec=%s, KillMode=%s: want %s for workers and 30 s more, and mixed", got, u["KillMode"], shutdown)
	}
	d.Stop(30 * time.Second)
}

func durationOf(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(strings.Replace(text, "min", "m", 1))
	if err != nil {
		t.Fatal(err)
	}
	return d
}
