// Package cli is the command line: it says what the shell wants over HTTP,
// with shared/client, and nothing in it speaks NATS. Commands that start roles
// are built elsewhere and given to it.
//
// What a command answers goes to standard output, as a table for people or
// with -o json as the API's own JSON, one document a line. Everything else,
// errors and the live line of a command that waits, goes to standard error.
package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"flightline/shared/process"
	"flightline/shared/tlsconfig"
)

// Config is what the command line needs from its process.
type Config struct {
	// Env holds the environment by name; see Environment. nil is an empty one.
	Env map[string]string
	// In, Out and Err are the standard streams. Required.
	In       io.Reader
	Out, Err io.Writer
	// Version is what `flightline version` prints.
	Version string
	// Program is the program as the user started it, for hints; "" is flightline.
	Program string
	// Variables are the names, beginning with FLIGHTLINE_, that Roles read from the
	// environment. Run warns of others.
	Variables []string
	// Roles are the commands that start something: dev, serve, worker.
	Roles []*cobra.Command
}

// shell is one run of the command line.
type shell struct {
	Config
	flags   flags
	started bool   // a command was found and its arguments taken
	noKey   string // why the server gets no key; "" if it gets one
}

// flags are those that all commands of a client have.
type flags struct {
	url, apiKey, data, output, retryTimeout string
	tls                                     tlsconfig.Client
}

// Run runs the command that args, without the program's name, spell, and
// returns the exit code. It writes errors to cfg.Err itself. The end of ctx
// ends the command.
func Run(ctx context.Context, cfg Config, args []string) int {
	cfg.Program = cmp.Or(cfg.Program, "flightline")
	sh := &shell{Config: cfg}
	root := sh.root()                         //nolint:contextcheck // commands get ctx when they run
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	found, err := root.ExecuteContextC(ctx)
	if err == nil {
		return process.ExitOK
	}
	code := exitCode(err, sh.started)
	if text := sh.errorText(ctx, err); text != "" {
		_, _ = fmt.Fprintf(sh.Err, "flightline: %s\n", text)
	}
	if code == process.ExitUsage {
		_, _ = fmt.Fprintf(sh.Err, "See '%s --help'.\n", found.CommandPath())
	}
	return code
}

func (sh *shell) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "flightline",
		Short: "A serverless job queue on NATS JetStream that speaks the RunPod API",
		Long: "Flightline queues jobs durably and runs them on your own workers.\n\n" +
			"  flightline dev                          everything in one process, to try it\n" +
			"  flightline run echo '{\"text\":\"hello\"}'    submit a job to it\n" +
			"  flightline help exit-codes              what scripts can rely on",
		Version:       cmp.Or(sh.Version, "(devel)"),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			sh.started = true
			sh.warnOfUnknownVariables()
			return sh.readSecrets(c)
		},
	}
	root.SetVersionTemplate("flightline {{.Version}}\n")
	root.SetIn(sh.In)
	root.SetOut(sh.Out)
	root.SetErr(sh.Err)
	root.AddGroup(
		&cobra.Group{ID: groupRoles, Title: "Run Flightline:"},
		&cobra.Group{ID: groupJobs, Title: "Jobs:"},
		&cobra.Group{ID: groupThings, Title: "Resources:"},
	)
	for _, c := range sh.Roles {
		c.GroupID = groupRoles
		if c.Name() == "worker" {
			c.AddCommand(sh.workerVerbs()...)
		}
		root.AddCommand(c)
	}
	for _, c := range sh.jobCommands() {
		c.GroupID = groupJobs
		root.AddCommand(sh.client(c))
	}
	for _, c := range []*cobra.Command{sh.endpointCommand(), sh.keyCommand(), sh.podCommand(), sh.templateCommand(), sh.volumeCommand(), machineCommand(sh), sh.webhookCommand(), sh.envCommand()} {
		c.GroupID = groupThings
		root.AddCommand(sh.client(c))
	}
	root.AddCommand(versionCommand(sh.Out, sh.Version), sh.healthcheckCommand(), exitCodesTopic())
	root.SetFlagErrorFunc(flagError)
	sh.completeArguments(root)
	root.InitDefaultCompletionCmd()
	checkArguments(root)
	root.InitDefaultHelpCmd() // it takes the words of any command
	help, _, _ := root.Find([]string{"help"})
	help.Args = checkHelpTopic
	return root
}

const (
	groupRoles  = "roles"
	groupJobs   = "jobs"
	groupThings = "things"
)

// client gives a command, and those below it, the flags of a client.
func (sh *shell) client(c *cobra.Command) *cobra.Command {
	f := c.PersistentFlags()
	f.StringVar(&sh.flags.url, "url", "", "server `address`, or several with commas between them; else FLIGHTLINE_URL, else the running dev's")
	f.StringVar(&sh.flags.apiKey, "api-key", "", "API `key`; else FLIGHTLINE_API_KEY, else the running dev's")
	SecretFlag(f, "api-key")
	f.StringVar(&sh.flags.data, "data", "", "data `folder` of the running dev; else FLIGHTLINE_DATA, else "+DefaultData)
	const retrying = "how long (`duration`) to try again while no server answers or it is busy; else FLIGHTLINE_RETRY_TIMEOUT, else 10s"
	f.StringVar(&sh.flags.retryTimeout, "retry-timeout", "", retrying)
	f.StringVar(&sh.flags.retryTimeout, "patience", "", retrying) // its old name
	_ = f.MarkHidden("patience")                                  // it was added in the line before
	sh.flags.tls.Flags(f.StringVar, sh.Env)
	f.StringVarP(&sh.flags.output, "output", "o", "table", "output `format`: table or json")
	return c
}

func versionCommand(out io.Writer, version string) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version",
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(out, "flightline", version)
			return err
		},
	}
}
