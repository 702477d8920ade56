package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"flightline/shared/disk"
)

// DefaultData is the data folder of `flightline dev`, in the working directory.
const DefaultData = ".flightline"

// runningFile is where a running dev says how to reach it.
const runningFile = "dev.json"

// ErrNotRunning means that a data folder names no running dev.
var ErrNotRunning = errors.New("no running 'flightline dev' found")

// Running is how to reach a `flightline dev`. It holds secrets, which outlive
// it; URL is "" when it was stopped.
type Running struct {
	URL    string `json:"url"`
	APIKey string `json:"apiKey"`
	// MetricsURL is what Prometheus scrapes; "" if --metrics-listen is off.
	MetricsURL string `json:"metricsUrl,omitempty"`
	// NATSURL is "" if NATS listens nowhere; it is that of the last start if URL is "".
	NATSURL      string `json:"natsUrl,omitempty"`
	NATSUser     string `json:"natsUser,omitempty"`
	NATSPassword string `json:"natsPassword,omitempty"`
	// EventsUser may read the log of events over NATS, and do nothing else.
	EventsUser     string `json:"natsEventsUser,omitempty"`
	EventsPassword string `json:"natsEventsPassword,omitempty"`
	// TLSCert is the path of the certificate that HTTP and NATS show, which is to
	// be believed; "" if both are plain.
	TLSCert string `json:"tlsCert,omitempty"`
	// Sync is when a write is on the disk: always, group or interval.
	Sync string `json:"sync,omitempty"`
	PID  int    `json:"pid"`
}

// RunningPath is the file in which the dev with this data folder says how to
// reach it.
func RunningPath(data string) string { return filepath.Join(data, runningFile) }

// FindRunning returns how to reach the dev with this data folder, "" meaning
// DefaultData, or ErrNotRunning. A dev that crashed is still found.
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
		return Running{}, fmt.Errorf("%s is damaged (%w): delete it, and start 'flightline dev' again. It makes new keys; jobs and endpoints stay", path, err)
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
	if err := disk.ReplaceFile(RunningPath(data), append(content, '\n')); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	return nil
}

// envCommand prints how to reach a running dev, for shells and programs that
// do not look into its data folder.
func (sh *shell) envCommand() *cobra.Command {
	return &cobra.Command{
		Use: "env", Short: "Print the running dev's addresses and keys for the shell",
		Long: "Print the running dev's addresses and keys as commands for the shell. They are\n" +
			"secrets, made to be evaluated and not to be shown.",
		Example: "  eval \"$(flightline env)\"",
		RunE: func(*cobra.Command, []string) error {
			if err := sh.flags.checkOutput(); err != nil {
				return err
			}
			r, err := FindRunning(sh.flags.dataFolder(sh.Env))
			if err != nil {
				return &CodedError{ExitUnreachable, err}
			}
			var rows [][]string
			for _, v := range []struct{ name, value string }{
				{"FLIGHTLINE_URL", r.URL},
				{"FLIGHTLINE_API_KEY", r.APIKey},
				{"FLIGHTLINE_CA", r.TLSCert},
				{"FLIGHTLINE_METRICS_URL", r.MetricsURL},
				{"NATS_URL", r.NATSURL},
				{"FLIGHTLINE_NATS_CA", natsCA(r)},
				{"FLIGHTLINE_NATS_USER", r.NATSUser},
				{"FLIGHTLINE_NATS_PASSWORD", r.NATSPassword},
				{"FLIGHTLINE_NATS_EVENTS_USER", r.EventsUser},
				{"FLIGHTLINE_NATS_EVENTS_PASSWORD", r.EventsPassword},
			} {
				if v.value != "" {
					rows = append(rows, []string{fmt.Sprintf("export %s=%s", v.name, quote(v.value))})
				}
			}
			return sh.show(r, rows)
		},
	}
}

// natsCA vouches for NATS, if it listens and shows a certificate.
func natsCA(r Running) string {
	if r.NATSURL == "" {
		return ""
	}
	return r.TLSCert
}
