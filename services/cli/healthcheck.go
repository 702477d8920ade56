package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/tlsconfig"
)

// checkWithin bounds a healthcheck: supervisors wait for it.
const checkWithin = 4 * time.Second

// errUnhealthy is a server that says so itself.
var errUnhealthy = errors.New("not ready")

// healthcheckCommand asks a process whether it is ready, for images that have
// no other program.
func (sh *shell) healthcheckCommand() *cobra.Command {
	var url string
	var files tlsconfig.Client
	c := &cobra.Command{
		Use: "healthcheck", Short: "Ask a process of Flightline whether it is ready; the exit code is 0 or 1",
		Long: "Ask the process that listens at --url whether it is ready, as the HEALTHCHECK of\n" +
			"an image does. Without --url that is FLIGHTLINE_LISTEN, over TLS if\n" +
			"FLIGHTLINE_TLS_CERT is set, whatever certificate is shown, else the dev that runs\n" +
			"with the data folder, else " + defaultListen + ".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			base, config, err := sh.healthcheckTarget(url, files)
			if err != nil {
				return err
			}
			if err := ready(cmd.Context(), base, config); err != nil {
				return &CodedError{1, err}
			}
			_, err = fmt.Fprintln(sh.Out, "ok")
			return err
		},
	}
	c.Flags().StringVar(&url, "url", "", "`address` of the process; /readyz is added")
	c.Flags().StringVar(&sh.flags.data, "data", "", "data `folder` of the running dev; else FLIGHTLINE_DATA, else "+DefaultData)
	files.Flags(c.Flags().StringVar, sh.Env)
	return c
}

// healthcheckTarget is the address of the process that is meant, and how to reach it.
// Without a url it is the one with our environment, on this machine, or the dev
// that runs.
func (sh *shell) healthcheckTarget(url string, files tlsconfig.Client) (base string, config *tls.Config, err error) {
	config, err = secured(files, "")
	if err != nil || url != "" {
		return url, config, err
	}
	if base, err = sh.nearest(); err != nil {
		return "", nil, err
	}
	own := &tls.Config{MinVersion: tls.VersionTLS12}
	if config != nil {
		own = config.Clone()
	}
	// The certificate may be for any name, and its file may be newer than what the process
	// shows, or never will since the key does not fit. It is asked at an
	// address of its own machine, and is sent no secret.
	own.InsecureSkipVerify = true
	return base, own, nil
}

// nearest is the address of that process.
func (sh *shell) nearest() (string, error) {
	listens := sh.Env["FLIGHTLINE_LISTEN"]
	if sh.flags.data != "" || listens == "" {
		running, err := FindRunning(sh.flags.dataFolder(sh.Env))
		if err == nil {
			return running.URL, nil
		}
		if sh.flags.data != "" || !errors.Is(err, ErrNotRunning) {
			return "", &CodedError{1, err}
		}
	}
	base := local(cmp.Or(listens, defaultListen))
	if sh.Env["FLIGHTLINE_TLS_CERT"] != "" {
		return "https://" + base, nil
	}
	return "http://" + base, nil
}

const defaultListen = "127.0.0.1:8080"

// local is where to reach, from this machine, what listens at the address.
func local(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err != nil || host != "" && (ip == nil || !ip.IsUnspecified()) {
		return listen
	}
	return net.JoinHostPort("127.0.0.1", port)
}

func ready(ctx context.Context, base string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s answers %d", errUnhealthy, base, res.StatusCode)
	}
	return nil
}
