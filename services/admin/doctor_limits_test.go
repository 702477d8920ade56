package admin_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/admin"
	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
	"flightline/shared/testenv"
	"flightline/streams"
)

// tight is a NATS whose limits are nearly reached, and where a user may not ask
// what a role has to ask.
const tight = `
max_payload: 512KB
accounts {
  A {
    jetstream { max_file: 400MB, max_streams: %d }
    users: [
      { user: admin, password: secret }
      { user: blind, password: secret, permissions: { publish: { deny: [%q] } } }
    ]
  }
}
`

func tightServer(t *testing.T, maxStreams int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, tight, maxStreams, bus.PullNext(streams.Webhooks, "nobody")), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := embedded.Start(t.Context(), embedded.Config{File: file, Dir: t.TempDir(), Listen: "127.0.0.1:0", User: "admin", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server.URL()
}

func as(t *testing.T, url, user string) *nats.Conn {
	t.Helper()
	return testenv.Connect(t, bus.Config{URL: url, User: user, Password: "secret"})
}

// The limits of the server and of its account, and what a user may not do, are
// told with what to do about them.
func TestDoctorTellsOfLimitsAndPermissions(t *testing.T) {
	t.Parallel() // it waits for an answer that is not allowed
	url := tightServer(t, 30)
	js, err := jetstream.New(as(t, url, "admin"))
	if err != nil {
		t.Fatal(err)
	}
	if err := streams.Apply(t.Context(), js, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	info, err := js.AccountInfo(t.Context())
	if err != nil || info.Streams*10 <= 30*9 {
		t.Fatalf("got %d streams, %v, want nearly 30: change the limit of this test", info.Streams, err)
	}
	for user, want := range map[string]map[string]admin.State{
		"admin": {"max_payload": admin.Fail, "streams": admin.Warn, "permissions": admin.OK, "storage": admin.OK},
		"blind": {"max_payload": admin.Fail, "permissions": admin.Fail},
	} {
		r, err := admin.Doctor(t.Context(), as(t, url, user), admin.DoctorConfig{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for check, state := range want {
			if f := found(r, check); f.State != state || (f.Hint == "") != (state == admin.OK) {
				t.Errorf("%s: %s: got %+v, want %s", user, check, f, state)
			}
		}
	}
	r, err := admin.Doctor(t.Context(), as(t, url, "admin"), admin.DoctorConfig{Log: slog.New(slog.DiscardHandler)})
	if f := found(r, "storage"); err != nil || !strings.Contains(f.Text, "of 400 MiB used") {
		t.Errorf("got %+v, %v, want the limit of the account's disk", f, err)
	}
}
