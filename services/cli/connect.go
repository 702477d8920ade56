package cli

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"flightline/shared/client"
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
