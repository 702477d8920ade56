package cli

import (
	"cmp"
	"errors"
	"fmt"

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
	running, err := FindRunning(sh.data())
	switch {
	case err == nil && (url == "" || url == running.URL):
		url, key = running.URL, cmp.Or(key, running.APIKey)
	case url != "":
	case errors.Is(err, ErrNotRunning):
		return nil, fmt.Errorf("%w; %w", err, errNoServer)
	default:
		return nil, err
	}
	c, err := client.New(url, key, client.WithUserAgent("flightline-cli/"+cmp.Or(sh.Version, "dev")))
	if err != nil {
		return nil, &UsageError{err}
	}
	return c, nil
}

// data is the folder of the dev that is meant; "" means DefaultData.
func (sh *shell) data() string { return cmp.Or(sh.flags.data, sh.Env["FLIGHTLINE_DATA"]) }
