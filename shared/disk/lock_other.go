//go:build !unix

package disk

import (
	"fmt"
	"os"
)

// Lock makes the file, but takes no lock: there is no flock here.
func Lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return file, nil
}
