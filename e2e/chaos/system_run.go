package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"flightline/e2e/chaos/system"
)

// ofSystem is what the command line says about the scenarios of package system.
type ofSystem struct {
	binary, other, report string
}

// system plays scenarios against the built binary and reports whether nothing
// was violated. No names means all of the form.
func (o options) system(ctx context.Context, names ...string) (good bool, err error) {
	dir, err := os.MkdirTemp("", "chaos-programs-")
	if err != nil {
		return false, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	cfg := system.Config{Binary: o.binary, Other: o.other, Short: o.short, Seed: o.seed}
	if err := cfg.Build(ctx, dir); err != nil {
		return false, err
	}
	fmt.Printf("\nscenarios of the built binary, seed %d\n", o.seed)
	results, err := system.Run(ctx, cfg, os.Stdout, names...)
	if err != nil {
		return false, err
	}
	good = true
	for _, r := range results {
		good = good && r.Good()
	}
	if o.report == "" {
		return good, nil
	}
	var text strings.Builder
	system.Markdown(&text, results)
	if err := os.WriteFile(o.report, []byte(text.String()), 0o644); err != nil { //nolint:gosec // for everybody to read
		return false, fmt.Errorf("write the report: %w", err)
	}
	return good, nil
}
