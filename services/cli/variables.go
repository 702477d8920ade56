package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const (
	variablePrefix = "FLIGHTLINE_"
	fileSuffix     = "_FILE"
)

// Environment returns the environment by name, from entries as "NAME=value".
// A variable FLIGHTLINE_X_FILE names a file that holds the value of
// FLIGHTLINE_X, without the line break at its end or a byte order mark, so that secrets need
// not be in the environment; the value itself wins if both are set. One of ours that is
// empty counts as not set, so that compose files can pass on what is not there.
func Environment(entries []string) (map[string]string, error) {
	env := make(map[string]string, len(entries))
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		if value != "" || !strings.HasPrefix(name, variablePrefix) {
			env[name] = value
		}
	}
	for _, entry := range entries {
		file, path, _ := strings.Cut(entry, "=")
		name, isFile := strings.CutSuffix(file, fileSuffix)
		if !isFile || path == "" || env[name] != "" || !strings.HasPrefix(name, variablePrefix) {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		env[name] = secretIn(data)
	}
	return env, nil
}

// PodVariables are those by which drivers know the processes of a pod, and those that
// name its GPUs.
var PodVariables = []string{"FLIGHTLINE_FLEET", "FLIGHTLINE_POD", "FLIGHTLINE_GPU_UUIDS", "FLIGHTLINE_GPU_SHARE", "FLIGHTLINE_GPU_MEMORY_MB"}

// ownVariables are those that this package reads, that `flightline env` sets, and that
// the compose files have.
var ownVariables = []string{
	"FLIGHTLINE_URL", "FLIGHTLINE_API_KEY", "FLIGHTLINE_DATA", "FLIGHTLINE_CA", "FLIGHTLINE_CLIENT_CERT", "FLIGHTLINE_CLIENT_KEY",
	"FLIGHTLINE_RETRY_TIMEOUT", "FLIGHTLINE_PATIENCE", "FLIGHTLINE_METRICS_URL", "FLIGHTLINE_NATS_EVENTS_USER", "FLIGHTLINE_NATS_EVENTS_PASSWORD",
	"FLIGHTLINE_IMAGE", "FLIGHTLINE_VERSION", "FLIGHTLINE_REQUIRE", "FLIGHTLINE_SKIPPED",
}

// warnOfUnknownVariables names the variables beginning with FLIGHTLINE_ that nothing
// reads, and for each the most similar name that something does.
func (sh *shell) warnOfUnknownVariables() {
	known := new(cobra.Command)
	for _, name := range slices.Concat(ownVariables, PodVariables, sh.Variables) {
		known.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	isKnown := func(name string) bool {
		return slices.ContainsFunc(known.Commands(), func(c *cobra.Command) bool { return c.Use == name })
	}
	for _, name := range slices.Sorted(maps.Keys(sh.Env)) {
		value, _ := strings.CutSuffix(name, fileSuffix)
		if !strings.HasPrefix(name, variablePrefix) || isKnown(value) {
			continue
		}
		hint := ""
		for _, known.SuggestionsMinimumDistance = range []int{2, 1} { // the nearest last
			if similar := known.SuggestionsFor(value); len(similar) > 0 {
				hint = "; did you mean " + similar[0] + "?"
			}
		}
		_, _ = fmt.Fprintf(sh.Err, "flightline: warning: unknown variable %s%s\n", name, hint)
	}
}
