package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// begun waits until so many runs have begun.
func (w *world) begun(ctx context.Context, runs int) error {
	return until(ctx, readyTimeout, func() error {
		if n := w.book.runs(); n < runs {
			return fmt.Errorf("%d runs have begun, want %d", n, runs)
		}
		return nil
	})
}

// open makes the file that gates wait for.
func (w *world) open(gate string) error {
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		return fmt.Errorf("open a gate: %w", err)
	}
	return nil
}

// gate is the path of a file for Input.Gate.
func (w *world) gate(name string) string { return filepath.Join(w.dir, "gate-"+name) }
