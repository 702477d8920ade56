package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"flightline/e2e/chaos/system"
)

// ofSystem is what the command line says about the scenarios of package system.
type ofSystem struct {
	binary, other, report string
}

// programs builds what the scenarios need, into a folder that end removes.
func (o options) programs(ctx context.Context) (cfg system.Config, dir string, end func(), err error) {
	dir, err = os.MkdirTemp("", "chaos-programs-")
	if err != nil {
		return cfg, "", nil, fmt.Errorf("make folder: %w", err)
	}
	end = func() { _ = os.RemoveAll(dir) } // a temporary folder
	cfg = system.Config{Binary: o.binary, Other: o.other, Short: o.short, Seed: o.seed}
	if o.timed {
		cfg.For = o.last
	}
	if err := cfg.Build(ctx, dir); err != nil {
		end()
		return cfg, "", nil, err
	}
	fmt.Printf("\nscenarios of the built binary, seed %d\n", o.seed)
	return cfg, dir, end, nil
}

// system plays scenarios against the built binary and reports whether nothing
// was violated. No names means all of the form.
func (o options) system(ctx context.Context, names ...string) (good bool, err error) {
	cfg, dir, end, err := o.programs(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	if !o.short && (len(names) == 0 || slices.Contains(names, "clock-step")) {
		if err := cfg.BuildClock(ctx, dir); err != nil {
			return false, err
		}
	}
	results, err := system.Run(ctx, cfg, os.Stdout, names...)
	if err != nil {
		return false, err
	}
	return o.reported(results)
}

// systemMutations reports whether the scenarios find the bugs planted in the binary.
func (o options) systemMutations(ctx context.Context) (good bool, err error) {
	cfg, dir, end, err := o.programs(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	return system.FindMutations(ctx, cfg, dir, os.Stdout)
}

// soak runs the long test.
func (o options) soak(ctx context.Context) (good bool, err error) {
	cfg, _, end, err := o.programs(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	jobs := o.jobs
	if jobs == 0 {
		jobs = int(o.last.Seconds()) * o.rate
	}
	r, err := system.Soak{Nodes: max(1, o.nodes), Jobs: jobs, For: o.last}.Run(ctx, cfg, os.Stdout)
	if err != nil {
		return false, err
	}
	r.Print(os.Stdout)
	return o.reported([]*system.Result{r})
}

// reported writes the report, if one is wanted, and reports whether nothing was
// violated.
func (o options) reported(results []*system.Result) (good bool, err error) {
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
