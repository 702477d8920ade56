package dev

import (
	"fmt"
	"io"
	"log/slog"

	"flightline/services/cli"
)

// newLogger writes lines of this level and above to w, where answers do not go.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("--log-level %q: must be debug, info, warn or error", level)}
	}
	opts := &slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, &cli.UsageError{Err: fmt.Errorf("--log-format %q: must be text or json", format)}
}

// NATS is where a NATS that runs elsewhere is, and how to get in.
type NATS struct {
	NATSURL      string `flag:"nats-url" env:"NATS_URL" help:"address of NATS, or several with commas between them"`
	NATSCreds    string `flag:"nats-creds" env:"NATS_CREDS" help:"path of a NATS credentials file"`
	NATSUser     string `flag:"nats-user" env:"FLIGHTLINE_NATS_USER" help:"user for NATS"`
	NATSPassword string `flag:"nats-password" env:"FLIGHTLINE_NATS_PASSWORD" secret:"yes" help:"password for NATS"`
}

// Config is what `flightline dev` may be told.
type Config struct {
	Listen     string `flag:"listen" env:"FLIGHTLINE_LISTEN" envDefault:"127.0.0.1:8080" help:"address for HTTP; port 0 takes a free one"`
	Data       string `flag:"data" env:"FLIGHTLINE_DATA" envDefault:".flightline" help:"folder that keeps everything; made if it is not there"`
	APIKey     string `flag:"api-key" env:"FLIGHTLINE_API_KEY" secret:"yes" help:"API key of an administrator, 8 bytes or more; a random one is made once and kept if there is none"`
	NATSListen string `flag:"nats-listen" env:"FLIGHTLINE_NATS_LISTEN" help:"address for NATS clients, or off; 127.0.0.1:4222 if there is none, or a free port if that is taken"`
	Sync       string `flag:"sync" env:"FLIGHTLINE_SYNC" envDefault:"always" help:"when an accepted job is on disk: always (before the answer, each write by itself), group (before the answer, one fsync for all who wait) or interval (within 2 minutes: a power loss loses jobs)"`
	Limits     string `flag:"limits" env:"FLIGHTLINE_LIMITS" envDefault:"default" help:"rate limits of the queue API: default (the contract's), off, or a JSON file; see operating.md"`
	NoDemo     bool   `flag:"no-demo" env:"FLIGHTLINE_NO_DEMO" help:"do not make the endpoint echo, nor run its worker and a first job"`
	LogLevel   string `flag:"log-level" env:"FLIGHTLINE_LOG_LEVEL" envDefault:"warn" help:"least important lines to log: debug, info, warn or error"`
	LogFormat  string `flag:"log-format" env:"FLIGHTLINE_LOG_FORMAT" envDefault:"text" help:"form of log lines: text or json"`
}

// ServeConfig is what `flightline serve` may be told.
type ServeConfig struct {
	Listen       string `flag:"listen" env:"FLIGHTLINE_LISTEN" envDefault:"127.0.0.1:8080" help:"address for HTTP; port 0 takes a free one"`
	Replicas     int    `flag:"replicas" env:"FLIGHTLINE_REPLICAS" envDefault:"1" help:"copies of each stream: 1 on one NATS server, 3 in a cluster"`
	Partitions   int    `flag:"partitions" env:"FLIGHTLINE_PARTITIONS" envDefault:"1" help:"streams that share the records of all endpoints; it may grow, and a smaller number than there are changes nothing"`
	BootstrapKey string `flag:"bootstrap-key" env:"FLIGHTLINE_BOOTSTRAP_KEY" secret:"yes" help:"API key of an administrator to put in at each start, 8 bytes or more; none if there is none"`
	Limits       string `flag:"limits" env:"FLIGHTLINE_LIMITS" envDefault:"default" help:"rate limits of the queue API: default (the contract's), off, or a JSON file; see operating.md"`
	NATS
	Webhooks
	LogLevel  string `flag:"log-level" env:"FLIGHTLINE_LOG_LEVEL" envDefault:"info" help:"least important lines to log: debug, info, warn or error"`
	LogFormat string `flag:"log-format" env:"FLIGHTLINE_LOG_FORMAT" envDefault:"text" help:"form of log lines: text or json"`
}
