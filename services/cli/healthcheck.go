package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// checkWithin bounds a healthcheck: supervisors wait for it.
const checkWithin = 4 * time.Second

// errUnhealthy is a server that says so itself.
var errUnhealthy = errors.New("not ready")

// healthcheckCommand asks a process whether it is ready, for images that have
// no other program.
func (sh *shell) healthcheckCommand() *cobra.Command {
	var url string
	c := &cobra.Command{
		Use: "healthcheck", Short: "Ask a process of Flightline whether it is ready; the exit code is 0 or 1", Args: cobra.NoArgs,
		Long: "Ask the process that listens at --url whether it is ready, as the HEALTHCHECK of\n" +
			"an image does. Without --url that is FLIGHTLINE_LISTEN, else " + defaultListen + ".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			base := cmp.Or(url, "http://"+local(cmp.Or(sh.Env["FLIGHTLINE_LISTEN"], defaultListen)))
			if err := ready(cmd.Context(), base); err != nil {
				return &CodedError{1, err}
			}
			_, err := fmt.Fprintln(sh.Out, "ok")
			return err
		},
	}
	c.Flags().StringVar(&url, "url", "", "`address` of the process; /readyz is added")
	return c
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

func ready(ctx context.Context, base string) error {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s answers %d", errUnhealthy, base, res.StatusCode)
	}
	return nil
}
