// Package need lets a test say what it cannot do without. On a laptop that
// lacks it the test is skipped and says why; where it must be there, such as
// in CI, the same test fails instead, so that nothing goes unproven unseen.
package need

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Variable is the environment variable that lists, with commas between them,
// what must be there: "s3,readme". "" or unset means nothing.
const Variable = "FLIGHTLINE_REQUIRE"

// Skip ends the test because what it needs is not there, for the reason
// given. It fails the test if Variable lists the need.
func Skip(t testing.TB, what, reason string) {
	t.Helper()
	//nolint:forbidigo // tests have no main to hand them their settings
	if required(os.Getenv(Variable), what) {
		t.Fatalf("%s names %s, but: %s", Variable, what, reason)
	}
	t.Skipf("needs %s: %s", what, reason)
}

func required(list, what string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(item string) bool {
		return strings.TrimSpace(item) == what
	})
}

// Asked reports whether Variable lists the need: for a test that would take too
// long to run wherever it can.
func Asked(what string) bool {
	return required(os.Getenv(Variable), what) //nolint:forbidigo // as above
}
