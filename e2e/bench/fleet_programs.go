package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// readyURL reads dev's output up to the line that says where it is, and lets
// the rest go.
func readyURL(out io.Reader) (string, error) {
	for scan := bufio.NewScanner(out); scan.Scan(); {
		if url, found := strings.CutPrefix(scan.Text(), "flightline ready: "); found {
			go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
			return url, nil
		}
	}
	return "", errors.New("it ended before it was ready")
}

// publishedPython is the interpreter that has RunPod's package, and a handler;
// "" if it is not there.
func publishedPython() (interpreter, script string) {
	dir := os.Getenv("FLIGHTLINE_CLIENTS")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", ""
		}
		dir = filepath.Join(home, ".cache", "flightline", "clients")
	}
	interpreter = filepath.Join(dir, "python", "bin", "python")
	script, err := filepath.Abs(filepath.Join("e2e", "workers", "plain.py"))
	if err != nil {
		return "", ""
	}
	for _, path := range []string{interpreter, script} {
		if _, err := os.Stat(path); err != nil { //nolint:gosec // the folder of whoever runs the benchmark
			return "", ""
		}
	}
	return interpreter, script
}
