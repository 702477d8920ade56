//go:build unix

package disk_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"flightline/shared/disk"
)

func TestLockWaitsForALockThatGoesSoon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := disk.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Lock(path); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("while it is locked: got %v, want ErrLocked", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = first.Close() })
	second, err := disk.Lock(path)
	if err != nil {
		t.Fatalf("once it is free: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
