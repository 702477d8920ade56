package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// envCommand prints how to reach a running dev, for shells and programs that
// do not look into its data folder.
func (sh *shell) envCommand() *cobra.Command {
	return &cobra.Command{
		Use: "env", Short: "Print the running dev's addresses and keys for the shell", Args: cobra.NoArgs,
		Long: "Print the running dev's addresses and keys as commands for the shell. They are\n" +
			"secrets, made to be evaluated and not to be shown.",
		Example: "  eval \"$(flightline env)\"",
		RunE: func(*cobra.Command, []string) error {
			if err := sh.checkOutput(); err != nil {
				return err
			}
			r, err := FindRunning(sh.data())
			if err != nil {
				return &CodedError{ExitUnreachable, err}
			}
			var rows [][]string
			for _, v := range []struct{ name, value string }{
				{"FLIGHTLINE_URL", r.URL},
				{"FLIGHTLINE_API_KEY", r.APIKey},
				{"FLIGHTLINE_CA", r.TLSCert},
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

// quote makes one word of the shell of text.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
