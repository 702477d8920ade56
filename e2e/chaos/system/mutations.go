package system

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
)

// mutation is a bug that the product carries behind the build tag plants, and the
// scenario that has to find it.
type mutation struct{ plant, scenario string }

func mutations() []mutation {
	return []mutation{
		{"plant_orphans", "scaler-kill"},
		{"plant_ask", "dev-freeze"},
		{"plant_fresh", "worker-freeze-idle"},
		{"plant_close", "cluster-rolling-stop"},
		{"plant_strand", "partition-long"},
	}
}

// FindMutations plays the scenario of each mutation with its bug built in, and without,
// and reports whether each bug was found and nothing else. dir is for programs.
func FindMutations(ctx context.Context, cfg Config, dir string, out io.Writer) (good bool, err error) {
	all := mutations()
	type result struct{ with, without *Result }
	results, errs := make([]result, len(all)), make([]error, len(all))
	program := filepath.Join(dir, "flightline-plants")
	if err := BuildPlants(ctx, program, flightlinePackage); err != nil {
		return false, err
	}
	var plays sync.WaitGroup
	for i, p := range all {
		buggy := cfg
		buggy.Binary, buggy.plant = program, p.plant
		plays.Go(func() {
			if results[i].with, errs[i] = p.play(ctx, buggy); errs[i] == nil {
				results[i].without, errs[i] = p.play(ctx, cfg)
			}
		})
	}
	plays.Wait()
	_, _ = fmt.Fprintf(out, "\nplanted bugs of the built binary\n  %-14s %6s %8s  %s\n", "", "found", "without", "first of what was found")
	good = true
	for i, p := range all {
		if errs[i] != nil {
			return false, fmt.Errorf("%s: %w", p.plant, errs[i])
		}
		with, without, first := len(results[i].with.Violations), len(results[i].without.Violations), ""
		if with > 0 {
			first = results[i].with.Violations[0].String()
		}
		_, _ = fmt.Fprintf(out, "  %-14s %6d %8d  %s: %s\n", p.plant, with, without, p.scenario, first)
		good = good && with > 0 && without == 0
	}
	return good, nil
}

func (p mutation) play(ctx context.Context, cfg Config) (*Result, error) {
	all := scenarios()
	i := slices.IndexFunc(all, func(s scenario) bool { return s.name == p.scenario })
	return all[i].perform(ctx, cfg)
}

// BuildPlants builds a package of this module with the planted bugs. A process of it
// has the one that Plant chose in its environment.
func BuildPlants(ctx context.Context, path, from string) error {
	return build(ctx, path, from, "-tags", "plants")
}

// Plant is the entry of the environment that chooses a planted bug by its name.
func Plant(name string) string { return "CHAOS_PLANT=" + name }
