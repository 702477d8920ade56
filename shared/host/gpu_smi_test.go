//go:build unix

package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"flightline/shared/testenv"
)

// What SIGKILL does not end is here a child that keeps the output open.
func TestAProgramThatGoesOnIsLeft(t *testing.T) {
	dir := t.TempDir()
	pipe, starts := filepath.Join(dir, "pipe"), filepath.Join(dir, "starts")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho started >> " + starts + "\ncat " + pipe + " &\nwait\n"
	if err := os.WriteFile(filepath.Join(dir, "smi"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	begun := func() string { text, _ := os.ReadFile(starts); return string(text) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := output(ctx, "smi")
		ended <- err
	}()
	testenv.Eventually(t, "it runs", func() bool { return begun() != "" })
	t.Cleanup(func() { // the child ends
		if f, err := os.OpenFile(pipe, os.O_WRONLY, 0); err != nil || f.Close() != nil {
			t.Error(err)
		}
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	if _, err := output(ctx, "smi"); !errors.Is(err, context.Canceled) {
		t.Errorf("again: got %v, want Canceled", err)
	}
	if got := begun(); got != "started\n" {
		t.Errorf("got %q, want one start: the first goes on", got)
	}
}
