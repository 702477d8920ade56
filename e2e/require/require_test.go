package require

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// outcome notes how Skip ended the test, without ending this one.
type outcome struct {
	testing.TB
	got string
}

func (o *outcome) Helper() {}

func (o *outcome) Fatalf(format string, v ...any) {
	if o.got == "" {
		o.got = "failed: " + fmt.Sprintf(format, v...)
	}
}

func (o *outcome) Skipf(format string, v ...any) {
	if o.got == "" {
		o.got = "skipped: " + fmt.Sprintf(format, v...)
	}
}

func TestSkipSkipsUnlessTheNeedIsListed(t *testing.T) {
	const (
		skipped = "skipped: needs s3: no server"
		failed  = "failed: FLIGHTLINE_REQUIRE names s3, but: no server"
	)
	for list, want := range map[string]string{
		"": skipped, "readme": skipped, "s33,xs3": skipped, "s3": failed, "readme, s3": failed,
	} {
		t.Setenv(Variable, list)
		t.Setenv(Skipped, "")
		o := &outcome{TB: t}
		Skip(o, "s3", "no server")
		if o.got != want {
			t.Errorf("%q: got %q, want %q", list, o.got, want)
		}
	}
}

func TestSkippedTestsAreNotedInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skipped")
	t.Setenv(Variable, "python")
	t.Setenv(Skipped, path)
	for _, what := range []string{"s3", "python", "docker"} {
		Skip(&outcome{TB: t}, what, "not there\nsee the log")
	}
	got, err := os.ReadFile(path)
	if want := "s3: not there\ndocker: not there\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
