package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"flightline/services/admin"
	"flightline/services/cli"
	"flightline/shared/bus"
	"flightline/shared/terminal"
	"flightline/streams"
)

// AdminConfig is what the commands of an operator may be given. Without an
// address they go to the running dev.
type AdminConfig struct {
	NATS
	Data      string `flag:"data" env:"FLIGHTLINE_DATA" default:".flightline" help:"data folder of the running dev, whose NATS is meant if no address is given"`
	LogLevel  string `flag:"log-level" env:"FLIGHTLINE_LOG_LEVEL" default:"info" help:"least important lines to log: debug, info, warn or error"`
	LogFormat string `flag:"log-format" env:"FLIGHTLINE_LOG_FORMAT" default:"text" help:"form of log lines: text or json"`
}

// RestoreConfig are the settings of `flightline restore`.
type RestoreConfig struct {
	AdminConfig
	Replicas int `flag:"replicas" env:"FLIGHTLINE_REPLICAS" help:"copies of each stream: 1 on one NATS server, 3 in a cluster; as they were unless it is given"`
}

// DoctorConfig are the settings of `flightline doctor`.
type DoctorConfig struct {
	AdminConfig
	Replicas   int           `flag:"replicas" env:"FLIGHTLINE_REPLICAS" default:"1" help:"copies of each stream that there should be; the same as for serve"`
	Partitions int           `flag:"partitions" env:"FLIGHTLINE_PARTITIONS" default:"1" help:"partitions that there should be; the same as for serve"`
	EventsAge  time.Duration `flag:"events-retention" env:"FLIGHTLINE_EVENTS_RETENTION" old:"events-age" default:"168h" help:"how long events should be kept; the same as for serve"`
	LogsAge    time.Duration `flag:"logs-retention" env:"FLIGHTLINE_LOGS_RETENTION" default:"72h" help:"how long what workers print should be kept; the same as for serve"`
	LogsBytes  int64         `flag:"logs-max-bytes" env:"FLIGHTLINE_LOGS_MAX_BYTES" default:"268435456" help:"bytes that what workers print may take; the same as for serve"`
	Deep       bool          `flag:"deep" env:"FLIGHTLINE_DOCTOR_DEEP" help:"read every message of every stream too, and say what is damaged; it changes nothing"`
	Fix        bool          `flag:"fix" env:"FLIGHTLINE_DOCTOR_FIX" help:"make streams, consumers and buckets as they should be"`
}

// AdminCommands are backup, restore and doctor.
func AdminCommands(environment map[string]string, version string) []*cobra.Command {
	return []*cobra.Command{backupCommand(environment, version), restoreCommand(environment), doctorCommand(environment)}
}

func backupCommand(environment map[string]string, version string) *cobra.Command {
	cfg := new(AdminConfig)
	c := &cobra.Command{
		Use: "backup DIR", Short: "Copy all jobs, endpoints and keys to a new folder, while all runs",
		Long: "Copy all streams and buckets to a new folder, while all runs. Every job that was\n" +
			"accepted before the backup began is in it. The folder holds secrets: the hashes\n" +
			"of API keys, webhook secrets, and what jobs were given.",
	}
	configure(c, environment, cfg, func(cmd *cobra.Command, args []string) error {
		return cfg.with(cmd, "backup", func(ctx context.Context, nc *nats.Conn, log *slog.Logger) error {
			m, err := admin.Backup(ctx, nc, args[0], version, log)
			if err != nil {
				return err
			}
			return reportBackup(cmd.OutOrStdout(), "backup complete", args[0], m)
		})
	})
	return c
}

func restoreCommand(environment map[string]string) *cobra.Command {
	cfg := new(RestoreConfig)
	c := &cobra.Command{
		Use: "restore DIR", Short: "Bring a backup back to a NATS without Flightline",
		Long: "Bring a backup back to a NATS on which Flightline has not been started: start\n" +
			"NATS, restore, then start Flightline. The backup is read whole before anything\n" +
			"is written.",
	}
	configure(c, environment, cfg, func(cmd *cobra.Command, args []string) error {
		if err := replicasInBounds(cfg.Replicas); cfg.Replicas != 0 && err != nil {
			return err
		}
		return cfg.with(cmd, "restore", func(ctx context.Context, nc *nats.Conn, log *slog.Logger) error {
			m, err := admin.Restore(ctx, nc, args[0], admin.RestoreConfig{Replicas: cfg.Replicas, Log: log})
			if err != nil {
				return err
			}
			return reportBackup(cmd.OutOrStdout(), "restore complete", args[0], m)
		})
	})
	return c
}

func doctorCommand(environment map[string]string) *cobra.Command {
	cfg, output := new(DoctorConfig), ""
	c := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong with NATS and with what Flightline keeps there",
		Long: "Look for what is wrong with NATS and with what Flightline keeps there. Each line\n" +
			"is ok, warn or fail, with what to do about it; fail makes the exit code 1.\n" +
			"With --deep it also reads all that is stored, which takes a while.",
	}
	configure(c, environment, cfg, func(cmd *cobra.Command, _ []string) error {
		if output != "table" && output != "json" {
			return &cli.UsageError{Err: fmt.Errorf("--output %s: must be table or json", output)}
		}
		if err := cmp.Or(replicasInBounds(cfg.Replicas), partitionsInBounds(cfg.Partitions), retentionInBounds("events-retention", cfg.EventsAge), LogSizes{LogsAge: cfg.LogsAge, LogsMaxBytes: cfg.LogsBytes}.check()); err != nil {
			return err
		}
		return cfg.with(cmd, "doctor", func(ctx context.Context, nc *nats.Conn, log *slog.Logger) error {
			report, err := cfg.examine(ctx, nc, log)
			if err != nil && len(report.Findings) == 0 {
				return err
			}
			if err := errors.Join(err, showReport(cmd.OutOrStdout(), output, report)); err != nil {
				return err
			}
			if report.Failed() {
				return errUnwell
			}
			return nil
		})
	})
	c.Flags().StringVarP(&output, "output", "o", "table", "form of the answer: table or json")
	return c
}

// examine has the doctor look.
func (c DoctorConfig) examine(ctx context.Context, nc *nats.Conn, log *slog.Logger) (admin.Report, error) {
	partitions := c.Partitions
	if js, err := jetstream.New(nc); err == nil {
		if there, err := partitionsOf(ctx, js, partitions); err == nil { // the doctor reports an error
			partitions = there
		}
	}
	return admin.Doctor(ctx, nc, admin.DoctorConfig{
		Streams: streams.Config{Replicas: c.Replicas, Partitions: partitions, EventsAge: c.EventsAge, LogsAge: c.LogsAge, LogsMaxBytes: explicitZero(c.LogsBytes)},
		Fix:     c.Fix, Deep: c.Deep, Log: log, Sync: c.dev().Sync,
	})
}

// dev is the one that is meant, the zero value for another NATS.
func (c AdminConfig) dev() cli.Running {
	r, err := cli.FindRunning(c.Data)
	if err != nil || c.NATSURL != "" && c.NATSURL != r.NATSURL {
		return cli.Running{}
	}
	return r
}

// with calls do with a connection to the NATS that is meant.
func (c AdminConfig) with(cmd *cobra.Command, name string, do func(context.Context, *nats.Conn, *slog.Logger) error) error {
	log, err := newLogger(cmd.ErrOrStderr(), c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	found, err := c.find(c.Data)
	if err != nil {
		return err
	}
	settings := found.bus(name, log)
	settings.Wait = false
	nc, err := bus.Connect(settings)
	if err != nil {
		return &cli.CodedError{Code: cli.ExitUnreachable, Err: err}
	}
	defer nc.Close()
	return do(cmd.Context(), nc, log)
}

func reportBackup(out io.Writer, what, dir string, m admin.Manifest) error {
	var messages uint64
	for _, c := range m.Streams {
		messages += c.Messages
	}
	_, err := fmt.Fprintf(out, "%s: %s (%d streams, %d messages, schema %d, begun %s)\n", what, dir, len(m.Streams), messages, m.Schema, m.Began.Format(time.RFC3339))
	return err
}

// errUnwell is a report with a fail in it.
var errUnwell = errors.New("something needs to be done")

func showReport(out io.Writer, form string, r admin.Report) error {
	if form == "json" {
		return json.NewEncoder(out).Encode(r)
	}
	var rows [][]string
	for _, f := range r.Findings {
		rows = append(rows, []string{f.State, f.Check, f.Text})
		if f.Hint != "" {
			rows = append(rows, []string{"", "", "→ " + f.Hint})
		}
	}
	return terminal.WrappedTable(out, rows)
}
