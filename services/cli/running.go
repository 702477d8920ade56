package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// DefaultData is the data folder of `flightline dev`, in the working directory.
const DefaultData = ".flightline"

// runningFile is where a running dev says how to reach it.
const runningFile = "dev.json"

// ErrNotRunning means that a data folder tells of no dev that runs.
var ErrNotRunning = errors.New("no running 'flightline dev' found")

// Running is how to reach a `flightline dev`. It holds secrets, which outlive
// it; URL is "" when it was stopped.
type Running struct {
	URL    string `json:"url"`
	APIKey string `json:"apiKey"`
	// NATSURL is "" if NATS listens nowhere.
	NATSURL      string `json:"natsUrl,omitempty"`
	NATSUser     string `json:"natsUser,omitempty"`
	NATSPassword string `json:"natsPassword,omitempty"`
	// EventsUser may read the log of events over NATS, and do nothing else.
	EventsUser     string `json:"natsEventsUser,omitempty"`
	EventsPassword string `json:"natsEventsPassword,omitempty"`
	// TLSCert is the path of the certificate that HTTP and NATS show, which is to
	// be believed; "" if both are plain.
	TLSCert string `json:"tlsCert,omitempty"`
	PID     int    `json:"pid"`
}

// RunningPath is the file in which the dev with this data folder says how to
// reach it.
func RunningPath(data string) string { return filepath.Join(data, runningFile) }

// FindRunning returns how to reach the dev with this data folder, "" meaning
// DefaultData, or ErrNotRunning. One that crashed is still found.
func FindRunning(data string) (Running, error) {
	r, err := ReadRunning(data)
	if err == nil && r.URL == "" {
		return Running{}, fmt.Errorf("%w: the one in %s was stopped", ErrNotRunning, cmp.Or(data, DefaultData))
	}
	return r, err
}

// ReadRunning is FindRunning that also returns the secrets that a dev which
// was stopped has kept for its next start.
func ReadRunning(data string) (Running, error) {
	data = cmp.Or(data, DefaultData)
	path := RunningPath(data)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Running{}, fmt.Errorf("%w in %s", ErrNotRunning, data)
	}
	if err != nil {
		return Running{}, fmt.Errorf("find the running dev: %w", err)
	}
	var r Running
	if err := json.Unmarshal(content, &r); err != nil {
		return Running{}, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}

// Announce writes r for others to find, readable by this user only. The file
// is replaced whole.
func (r Running) Announce(data string) error {
	content, err := json.MarshalIndent(r, "", "  ") //nolint:gosec // the file is for this user only
	if err != nil {
		return err
	}
	if err := WritePrivate(RunningPath(data), append(content, '\n')); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	return nil
}

// WritePrivate writes a file that only its owner may read, all of it or nothing.
// What was there is replaced; a link is not followed.
func WritePrivate(path string, content []byte) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(next, path)
}
