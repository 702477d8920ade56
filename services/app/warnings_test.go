package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"flightline/shared/pod"
	"flightline/shared/process"
)

// A setting that cannot hold, or that nothing reads, is a warning.
func TestSettingsWithoutEffectAreWarnings(t *testing.T) {
	files := process.MaxFiles()
	if files == 0 {
		files = 1 << 30 // not known here
	}
	for name, test := range map[string]struct {
		check func(*slog.Logger)
		want  string
	}{
		"half of the files": {func(log *slog.Logger) { Connections{MaxConnections: files / 2}.limit(log) }, ""},
		"drivers of an autoscaler": {func(log *slog.Logger) {
			(&fleets{names: []pod.Driver{pod.Process}}).warnUnused([]string{roleAPI, roleAutoscaler}, log)
		}, ""},
		"no drivers": {func(log *slog.Logger) { (&fleets{}).warnUnused([]string{roleAPI}, log) }, ""},
		"drivers of an api": {func(log *slog.Logger) {
			(&fleets{names: []pod.Driver{pod.Process}}).warnUnused([]string{roleAPI}, log)
		}, "--drivers has no effect"},
		"more than half of the files": {func(log *slog.Logger) { Connections{MaxConnections: files/2 + 1}.limit(log) }, "raise ulimit -n"},
	} {
		if test.want == "raise ulimit -n" && process.MaxFiles() == 0 {
			continue
		}
		var lines bytes.Buffer
		test.check(slog.New(slog.NewTextHandler(&lines, nil)))
		if got := lines.String(); !strings.Contains(got, test.want) || (test.want == "") != (got == "") {
			t.Errorf("%s: got %q, want %q in it", name, got, test.want)
		}
	}
}
