package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flightline/services/cli"
)

func TestTheCatalogIsReadFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "catalog.json")
	for text, want := range map[string]string{
		`{"machines":{"m1":{"location":"EU"}}}`:  "",
		`{"machine":{}}`:                         "machine is not a known field",
		`{"gpuTypes":{"L4":{"securePrice":-1}}}`: "gpuTypes.L4.securePrice must not be negative",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := catalogOf(file)
		if want == "" && (err != nil || got.Machines["m1"].Location != "EU") {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
		if _, usage := errors.AsType[*cli.UsageError](err); want != "" && (!usage || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want a usage error with %q", text, err, want)
		}
	}
	if got, err := catalogOf(""); got != nil || err != nil {
		t.Errorf("got %v, %v, want none", got, err)
	}
	if _, err := catalogOf(file + ".not"); err == nil {
		t.Error("got nil, want an error for no file")
	}
}
