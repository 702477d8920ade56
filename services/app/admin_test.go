package app

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/cli"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// Without an address, what an operator does goes to the NATS of the dev that
// runs here, or nowhere: not to another one on this machine, with the password
// of the dev or without any.
func TestAnOperatorsCommandGoesToNoOtherNATS(t *testing.T) {
	dir := t.TempDir()
	backup := filepath.Join(t.TempDir(), "backup")
	for want, running := range map[string]cli.Running{
		"Give --nats-url":   {},
		"--nats-listen off": {URL: "http://127.0.0.1:1", NATSUser: "flightline", NATSPassword: "hush"},
	} {
		if err := running.Announce(dir); err != nil {
			t.Fatal(err)
		}
		for _, line := range [][]string{{"backup", backup}, {"restore", backup}, {"doctor", "--fix"}} {
			err := refusal(t, nil, append(line, "--data", dir)...)
			coded, ok := errors.AsType[*cli.CodedError](err)
			if !ok || coded.Code != cli.ExitUnreachable || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: got %v, want %q", line, err, want)
			}
		}
	}
}

// A process uses all partitions that exist, so the doctor compares with all of them.
func TestTheDoctorUsesThePartitionsThatExist(t *testing.T) {
	b := testenv.NewServer(t)
	js, err := jetstream.New(testenv.Connect(t, b.Config()))
	if err != nil {
		t.Fatal(err)
	}
	if err := streams.Apply(t.Context(), js, streams.Config{Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	share := logsBytesOf(t, js)
	if err := refusal(t, nil, "doctor", "--fix", "--nats-url", b.Config().URL, "--nats-user", b.Config().User, "--nats-password", b.Config().Password); err != nil {
		t.Fatal(err)
	}
	if got := logsBytesOf(t, js); got != share {
		t.Errorf("got %d bytes for %s after doctor --fix, want %d", got, streams.Logs(0), share)
	}
}

// A client's key in FLIGHTLINE_API_KEY of the operator's shell must not become the administrator's.
func TestAKeyWithFewerScopesDoesNotBecomeTheAdministrators(t *testing.T) {
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	reg, err := registry.New(t.Context(), b.JS, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	scope := registry.Scope{Permission: registry.Submit, Endpoint: "echo"}
	plain, key, err := reg.Keys.Create(t.Context(), registry.KeySpec{Name: "ci", Scopes: []registry.Scope{scope}})
	if err != nil {
		t.Fatal(err)
	}
	err = putAdminKey(t.Context(), reg, plain)
	if _, usage := errors.AsType[*cli.UsageError](err); !usage || !strings.Contains(err.Error(), key.ID) || strings.Contains(err.Error(), plain) {
		t.Errorf("got %v, want a UsageError with the key's id", err)
	}
	if got, err := reg.Keys.Check(t.Context(), plain); err != nil || got.Allows("other", registry.Submit) {
		t.Errorf("got %v, %v, want the key as it was", got.Scopes, err)
	}
	for range 2 { // the second time it exists
		if err := putAdminKey(t.Context(), reg, "an administrator's"); err != nil {
			t.Error(err)
		}
	}
}

func logsBytesOf(t *testing.T, js jetstream.JetStream) int64 {
	t.Helper()
	s, err := js.Stream(t.Context(), streams.Logs(0))
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config.MaxBytes
}

// A start that would take copies away, or on half a backup, is not tried again.
func TestWhatTimeDoesNotHealIsRefusedAtOnce(t *testing.T) {
	for _, err := range []error{streams.ErrReplicas, streams.ErrRestoring} {
		if mayHeal(err) {
			t.Errorf("%v: got that time may heal it", err)
		}
	}
}
