package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"flightline/e2e/chaos/system"
)

// self is what the program with the planted bugs is built from.
const self = "flightline/e2e/chaos"

// found is what a scenario told, with its bug and without.
type found struct {
	with, without       int
	first               string // of the violations with the bug
	withErr, withoutErr error
}

// findMutations plays each scenario twice, with its bug built in and without, and
// reports whether every bug was found and nothing else.
func findMutations(ctx context.Context, out io.Writer) (bool, error) {
	dir, err := os.MkdirTemp("", "chaos-plants-")
	if err != nil {
		return false, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	all := scenarios()
	results := make([]found, len(all))
	var plays sync.WaitGroup
	for i, sc := range all {
		plays.Go(func() { results[i].without, _, results[i].withoutErr = result(sc.perform(ctx)) })
	}
	program := filepath.Join(dir, "chaos")
	if err := system.BuildPlants(ctx, program, self); err != nil {
		plays.Wait()
		return false, err
	}
	for i, sc := range all {
		plays.Go(func() {
			r := &results[i]
			r.with, r.first, r.withErr = playElsewhere(ctx, program, sc.plant)
		})
	}
	plays.Wait()
	_, _ = fmt.Fprintf(out, "\nplanted bugs\n  %-14s %6s %8s  %s\n", "", "found", "without", "first of what was found")
	good := true
	for i, sc := range all {
		r := results[i]
		_, _ = fmt.Fprintf(out, "  %-14s %6d %8d  %s\n", sc.plant, r.with, r.without, r.first)
		if err := errors.Join(r.withErr, r.withoutErr); err != nil {
			return false, fmt.Errorf("%s: %w", sc.plant, err)
		}
		good = good && r.with > 0 && r.without == 0
	}
	return good, nil
}

func result(r *report, err error) (int, string, error) {
	switch {
	case err != nil:
		return 0, "", err
	case len(r.violations) == 0:
		return 0, "", nil
	}
	first, _, _ := strings.Cut(r.violations[0].String(), "\n")
	return len(r.violations), first, nil
}

// playElsewhere lets another build of this program play the scenario of a bug with
// the bug, and reads its table.
func playElsewhere(ctx context.Context, program, plant string) (violations int, first string, err error) {
	cmd := exec.CommandContext(ctx, program, "-scenario", plant) //nolint:gosec // built above
	cmd.Env = append(os.Environ(), system.Plant(plant))
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || len(text) == 0) {
		return 0, "", fmt.Errorf("play: %w", err)
	}
	_, rest, ok := strings.Cut(string(text), countOfViolations)
	if !ok {
		return 0, "", fmt.Errorf("play: no count in %q", text)
	}
	if _, err := fmt.Sscan(rest, &violations); err != nil {
		return 0, "", fmt.Errorf("play: count of violations: %w", err)
	}
	if lines := strings.Split(rest, "\n"); violations > 0 && len(lines) > 1 {
		first = strings.TrimSpace(lines[1])
	}
	return violations, first, nil
}
