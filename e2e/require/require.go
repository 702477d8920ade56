// Package require lets a test name what it needs from the machine. Where that is
// missing the test is skipped with a reason. Where it must be present, such as in
// CI, the same test fails instead.
package require

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Variable is the environment variable that lists, with commas between them,
// what must be there: "s3,readme". "" or unset means nothing.
const Variable = "FLIGHTLINE_REQUIRE"

// Skipped is the environment variable that names a file to which each skipped
// test adds a line, so that a run can say at its end what it left unproven. ""
// or unset writes none.
const Skipped = "FLIGHTLINE_SKIPPED"

// Skip ends the test because what it needs is not there, for the reason
// given. It fails the test if Variable lists the need.
func Skip(t testing.TB, what, reason string) {
	t.Helper()
	//nolint:forbidigo // tests have no main to hand them their settings
	if required(os.Getenv(Variable), what) {
		t.Fatalf("%s names %s, but: %s", Variable, what, reason)
		return
	}
	if path := os.Getenv(Skipped); path != "" { //nolint:forbidigo // as above
		if err := note(path, what, reason); err != nil {
			t.Fatalf("note in %s that the test is skipped: %v", path, err)
		}
	}
	t.Skipf("needs %s: %s", what, reason)
}

// note adds one line to the file: the need and the first line of the reason.
func note(path, what, reason string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the caller's own file
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(reason, "\n")
	_, err = fmt.Fprintf(file, "%s: %s\n", what, first)
	return errors.Join(err, file.Close())
}

func required(list, what string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(item string) bool {
		return strings.TrimSpace(item) == what
	})
}

// Requested reports whether Variable lists the need: for a test that would take too
// long to run wherever it can.
func Requested(what string) bool {
	return required(os.Getenv(Variable), what) //nolint:forbidigo // as above
}

// Clients is the folder in which e2e/clients/install puts the published clients.
func Clients(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("FLIGHTLINE_CLIENTS"); dir != "" { //nolint:forbidigo // as above
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(home, ".cache", "flightline", "clients")
}
