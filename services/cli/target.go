package cli

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"flightline/shared/client"
)

// errNoServer means that nothing says where the server is.
var errNoServer = errors.New("where is the server? Give --url, set FLIGHTLINE_URL, or start one here with 'flightline dev'")

// connect returns a client of the server that is meant: the flags decide, then
// the environment, then a dev that runs with this data folder. A key from
// dev.json is used for that dev only, and never sent to another server.
func (sh *shell) connect() (*client.Client, error) {
	url := cmp.Or(sh.flags.url, sh.Env["FLIGHTLINE_URL"])
	key := cmp.Or(sh.flags.apiKey, sh.Env["FLIGHTLINE_API_KEY"])
	shown := "" // by a dev that is meant
	running, err := FindRunning(sh.data())
	switch {
	case err == nil && (url == "" || url == running.URL):
		url, key, shown = running.URL, cmp.Or(key, running.APIKey), running.TLSCert
	case url != "":
	case errors.Is(err, ErrNotRunning):
		return nil, fmt.Errorf("%w; %w", err, errNoServer)
	default:
		return nil, err
	}
	patience, err := sh.patience()
	if err != nil {
		return nil, err
	}
	config, err := secured(sh.flags.tls, shown)
	if err != nil {
		return nil, err
	}
	c, err := client.New(url, key, client.WithTLS(config), client.WithUserAgent("flightline-cli/"+cmp.Or(sh.Version, "dev")), client.WithPatience(patience), client.WithRepeatableRuns())
	if err != nil {
		return nil, &UsageError{err}
	}
	return c, nil
}

// defaultPatience outlasts the restart of a server, and somebody who mistyped its
// address can bear it.
const defaultPatience = 10 * time.Second

// patience is how long to try again: the flag decides, then the environment.
func (sh *shell) patience() (time.Duration, error) {
	text := cmp.Or(sh.flags.patience, sh.Env["FLIGHTLINE_PATIENCE"])
	if text == "" {
		return defaultPatience, nil
	}
	patience, err := time.ParseDuration(text)
	if err != nil || patience < 0 {
		return 0, &UsageError{fmt.Errorf("--patience %q: must be a duration like 10s", text)}
	}
	return patience, nil
}

// data is the folder of the dev that is meant; "" means DefaultData.
func (sh *shell) data() string { return cmp.Or(sh.flags.data, sh.Env["FLIGHTLINE_DATA"]) }
