package cli

import (
	"fmt"
	"os"
	"strings"
)

const (
	variablePrefix = "FLIGHTLINE_"
	fileSuffix     = "_FILE"
)

// Environment returns the environment by name, from entries as "NAME=value".
// A variable FLIGHTLINE_X_FILE names a file that holds the value of
// FLIGHTLINE_X, without the line break at its end, so that secrets need not be
// in the environment; the value itself wins if both are set. One of ours that is
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
		env[name] = strings.TrimRight(string(data), "\r\n")
	}
	return env, nil
}
