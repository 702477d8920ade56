package dev

import (
	"fmt"
	"os"

	"flightline/services/cli"
	"flightline/shared/pod"
)

// catalogOf reads the file of --catalog; nil if there is none.
func catalogOf(path string) (*pod.Catalog, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no catalogue knows nothing, and is no error
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("--catalog: %w", err)}
	}
	catalog, err := pod.ParseCatalog(text)
	if err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("--catalog %s: %w", path, err)}
	}
	return catalog, nil
}
