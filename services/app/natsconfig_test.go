package app

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"flightline/services/cli"
	"flightline/shared/process"
)

// natsConfig runs nats-config for the folder and returns the texts of its files.
func natsConfig(t *testing.T, dir string, args ...string) map[string]string {
	t.Helper()
	var errs bytes.Buffer
	line := append([]string{"nats-config", "--dir", dir}, args...)
	if code := cli.Run(t.Context(), cli.Config{Out: io.Discard, Err: &errs, Roles: commands(nil)}, line); code != process.ExitOK {
		t.Fatalf("got %d %s", code, &errs)
	}
	files := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(path, dir)] = string(text)
	}
	return files
}

// changed are the files that differ.
func changed(before, after map[string]string) []string {
	var names []string
	for name, text := range after {
		if before[name] != text {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestTheConfigurationOfNATSIsRepeatedWithoutChanges(t *testing.T) {
	dir := t.TempDir()
	first := natsConfig(t, dir)
	if again := natsConfig(t, dir); !maps.Equal(first, again) {
		t.Errorf("again: got other texts in %v, want the same", changed(first, again))
	}
	password := filepath.Join(dir, "api", "password")
	if err := os.WriteFile(password, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	empty := natsConfig(t, dir)
	if got := changed(first, empty); !slices.Equal(got, []string{"/api/password", "/nats/nats.conf"}) || empty["/api/password"] == "" {
		t.Errorf("an empty password: got %v changed, and %q, want a new one", got, empty["/api/password"])
	}
	other := natsConfig(t, dir, "--api-key", "another-api-key")
	if got := changed(empty, other); !slices.Equal(got, []string{"/control/api-key", "/key/api-key"}) || other["/control/api-key"] != "another-api-key" {
		t.Errorf("another API key: got %v changed, want both its files", got)
	}
}
