package cli

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/disk"
	"flightline/shared/tlsconfig"
)

// errNoServer means that nothing says where the server is.
var errNoServer = errors.New("where is the server?")

// connect returns a client of the server that is meant: the flags decide, then
// the environment, then a dev that runs with this data folder. A key from
// dev.json is used for that dev only, and never sent to another server.
func (sh *shell) connect() (*client.Client, error) {
	url := cmp.Or(sh.flags.url, sh.Env["FLIGHTLINE_URL"])
	key := cmp.Or(sh.flags.apiKey, sh.Env["FLIGHTLINE_API_KEY"])
	shown := "" // by a dev that is meant
	running, err := FindRunning(sh.flags.dataFolder(sh.Env))
	switch {
	case err == nil && (url == "" || strings.TrimRight(url, "/") == running.URL):
		url, key, shown = running.URL, cmp.Or(key, running.APIKey), running.TLSCert
	case url != "" && key == "":
		sh.noKey = "no key was given: set FLIGHTLINE_API_KEY or give --api-key-file"
		if err == nil {
			sh.noKey += "; that of the dev in " + cmp.Or(sh.flags.dataFolder(sh.Env), DefaultData) + " goes to " + running.URL + " only"
		}
	case url != "":
	case errors.Is(err, ErrNotRunning):
		return nil, fmt.Errorf("%w; %w Give --url, set FLIGHTLINE_URL, or start one here with '%s dev'", err, errNoServer, sh.Program)
	default:
		return nil, err
	}
	retryTimeout, err := sh.flags.timeout(sh.Env)
	if err != nil {
		return nil, err
	}
	config, err := secured(sh.flags.tls, shown)
	if err != nil {
		return nil, err
	}
	c, err := client.New(url, key, client.WithTLS(config), client.WithUserAgent("flightline-cli/"+cmp.Or(sh.Version, "dev")), client.WithPatience(retryTimeout), client.WithRepeatableRuns())
	if err != nil {
		return nil, &UsageError{err}
	}
	return c, nil
}

// defaultRetryTimeout outlasts the restart of a server, and somebody who mistyped its
// address can bear it.
const defaultRetryTimeout = 10 * time.Second

// timeout is how long to try again: the flag decides, then the environment.
func (f flags) timeout(env map[string]string) (time.Duration, error) {
	text := cmp.Or(f.retryTimeout, env["FLIGHTLINE_RETRY_TIMEOUT"], env["FLIGHTLINE_PATIENCE"])
	if text == "" {
		return defaultRetryTimeout, nil
	}
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout < 0 {
		return 0, &UsageError{fmt.Errorf("--retry-timeout must be a duration such as 10s, 0s or more, got %q", text)}
	}
	return timeout, nil
}

// dataFolder is the folder of the dev that is meant; "" means DefaultData.
func (f flags) dataFolder(env map[string]string) string {
	return cmp.Or(f.data, env["FLIGHTLINE_DATA"])
}

// secured is what the files say, and where they name no authorities, what a dev
// that was found shows itself; nil for the system's authorities.
func secured(files tlsconfig.Client, shown string) (*tls.Config, error) {
	files.CA = cmp.Or(files.CA, shown)
	config, err := files.Config()
	if err != nil {
		return nil, &UsageError{err}
	}
	return config, nil
}

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

const (
	variablePrefix = "FLIGHTLINE_"
	fileSuffix     = "_FILE"
)

// Environment returns the environment by name, from entries as "NAME=value".
// A variable FLIGHTLINE_X_FILE names a file that holds the value of
// FLIGHTLINE_X, without the line break at its end or a byte order mark, so that secrets need
// not be in the environment; the value itself wins if both are set. One of ours that is
// empty counts as not set, so that compose files can pass on what is not there.
func Environment(entries []string) (map[string]string, error) {
	env := make(map[string]string, len(entries))
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		if value != "" || !strings.HasPrefix(name, variablePrefix) {
			env[name] = value
		}
	}
	for _, entry := range entries {
		file, path, _ := strings.Cut(entry, "=")
		name, isFile := strings.CutSuffix(file, fileSuffix)
		if !isFile || path == "" || env[name] != "" || !strings.HasPrefix(name, variablePrefix) {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		env[name] = secretIn(data)
	}
	return env, nil
}

// PodVariables are those by which drivers know the processes of a pod, and those that
// name its GPUs.
var PodVariables = []string{"FLIGHTLINE_FLEET", "FLIGHTLINE_POD", "FLIGHTLINE_GPU_UUIDS", "FLIGHTLINE_GPU_SHARE", "FLIGHTLINE_GPU_MEMORY_MB"}

// ownVariables are those that this package reads, that `flightline env` sets, and that
// the compose files have.
var ownVariables = []string{
	"FLIGHTLINE_URL", "FLIGHTLINE_API_KEY", "FLIGHTLINE_DATA", "FLIGHTLINE_CA", "FLIGHTLINE_CLIENT_CERT", "FLIGHTLINE_CLIENT_KEY",
	"FLIGHTLINE_RETRY_TIMEOUT", "FLIGHTLINE_PATIENCE", "FLIGHTLINE_METRICS_URL", "FLIGHTLINE_NATS_EVENTS_USER", "FLIGHTLINE_NATS_EVENTS_PASSWORD",
	"FLIGHTLINE_IMAGE", "FLIGHTLINE_VERSION", "FLIGHTLINE_REQUIRE", "FLIGHTLINE_SKIPPED",
}

// warnOfUnknownVariables names the variables beginning with FLIGHTLINE_ that nothing
// reads, and for each the most similar name that something does.
func (sh *shell) warnOfUnknownVariables() {
	known := new(cobra.Command)
	for _, name := range slices.Concat(ownVariables, PodVariables, sh.Variables) {
		known.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	isKnown := func(name string) bool {
		return slices.ContainsFunc(known.Commands(), func(c *cobra.Command) bool { return c.Use == name })
	}
	for _, name := range slices.Sorted(maps.Keys(sh.Env)) {
		value, _ := strings.CutSuffix(name, fileSuffix)
		if !strings.HasPrefix(name, variablePrefix) || isKnown(value) {
			continue
		}
		hint := ""
		for _, known.SuggestionsMinimumDistance = range []int{2, 1} { // the nearest last
			if similar := known.SuggestionsFor(value); len(similar) > 0 {
				hint = "; did you mean " + similar[0] + "?"
			}
		}
		_, _ = fmt.Fprintf(sh.Err, "flightline: warning: unknown variable %s%s\n", name, hint)
	}
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

// plainWord is what the shell does not change.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:,=@%+-]+$`)

// word is text as a word of the shell, quoted where the shell would change it.
func word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return quote(text)
}

// quote makes one word of the shell of text.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
