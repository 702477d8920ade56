package bus_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
	"flightline/shared/testenv"
)

// A user of `flightline nats-config` has inboxes of its own. Without its prefix every request
// ends as if nobody answered.
func TestAUserWithoutItsInboxPrefixLearnsOfIt(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nats.conf")
	text := `authorization { users: [{user: api, password: secret, permissions: {publish: ">", subscribe: "_INBOX_api.>"}}] }`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := embedded.Start(t.Context(), embedded.Config{File: file, Dir: t.TempDir(), Listen: "127.0.0.1:0", User: "api", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	log := make(lines, 100)
	nc := testenv.Connect(t, bus.Config{URL: server.URL(), User: "api", Password: "secret", Log: slog.New(slog.NewTextHandler(log, nil))})
	_, _ = nc.Request("nobody", nil, time.Second)
	if line := <-log; !strings.Contains(line, "Permissions Violation") || !strings.Contains(line, "--nats-inbox-prefix") {
		t.Errorf("got %s, want what to give", line)
	}
}
