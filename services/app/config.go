package app

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flightline/services/cli"
	"flightline/shared/process"
	"flightline/shared/telemetry"
	"flightline/shared/web"
)

// newLogger writes lines of this level and above to w, where answers do not go. The
// process goes on if nothing reads them. What the standard library prints by itself, as
// net/http does of a failed handshake, becomes a line of the level debug.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	process.SurviveBrokenPipe()
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, wrong("log-level", level, "debug, info, warn or error")
	}
	opts := &slog.HandlerOptions{Level: least}
	var form func(io.Writer) slog.Handler
	switch format {
	case "text":
		form = func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, opts) }
	case "json":
		form = func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, opts) }
	default:
		return nil, wrong("log-format", format, "text or json")
	}
	log := telemetry.NewLogger(w, form)
	slog.SetLogLoggerLevel(slog.LevelDebug)
	slog.SetDefault(log)
	return log, nil
}

// NATS is where a NATS that runs elsewhere is, and how to get in.
type NATS struct {
	NATSURL      string `flag:"nats-url" env:"NATS_URL" help:"address of NATS, or several with commas between them"`
	NATSCreds    string `flag:"nats-creds" env:"NATS_CREDS" help:"path of a NATS credentials file"`
	NATSUser     string `flag:"nats-user" env:"FLIGHTLINE_NATS_USER" help:"user for NATS"`
	NATSPassword string `flag:"nats-password" env:"FLIGHTLINE_NATS_PASSWORD" secret:"yes" help:"password for NATS"`
	NATSInbox    string `flag:"nats-inbox-prefix" env:"FLIGHTLINE_NATS_INBOX_PREFIX" old:"nats-inbox" help:"inbox prefix, for NATS users restricted to one; _INBOX by default"`
	NATSCA       string `flag:"nats-ca" env:"FLIGHTLINE_NATS_CA" help:"path of the CA certificates for NATS, as PEM; enables and requires TLS"`
	NATSCert     string `flag:"nats-cert" env:"FLIGHTLINE_NATS_CERT" help:"path of the certificate, as PEM, that is shown to NATS"`
	NATSKey      string `flag:"nats-key" env:"FLIGHTLINE_NATS_KEY" help:"path of its key, as PEM"`
}

// TLS names the files of what all our listeners show.
type TLS struct {
	TLSCert string `flag:"tls-cert" env:"FLIGHTLINE_TLS_CERT" help:"path of the certificate, as PEM, that every listener shows, followed by those between it and its authority; read again when it changes. Without one they are plain"`
	TLSKey  string `flag:"tls-key" env:"FLIGHTLINE_TLS_KEY" help:"path of its key, as PEM, which not everybody on the machine may read"`
}

// Connections bounds those that are open at a time.
type Connections struct {
	MaxConnections           int `flag:"max-connections" env:"FLIGHTLINE_MAX_CONNECTIONS" help:"most connections that are open at a time, for HTTP and metrics together; 0 means half of the files that the process may open, at most 16384"`
	MaxConnectionsPerAddress int `flag:"max-connections-per-address" env:"FLIGHTLINE_MAX_CONNECTIONS_PER_ADDRESS" help:"most of them from one client address, or from one IPv6 network of 64 bits; 0 means half of all. Behind a proxy, which is one address, give as many as --max-connections"`
}

// check returns what is wrong with the settings.
func (c Connections) check() error {
	if c.MaxConnections < 0 {
		return wrong("max-connections", c.MaxConnections, "0 or more")
	}
	if c.MaxConnectionsPerAddress < 0 {
		return wrong("max-connections-per-address", c.MaxConnectionsPerAddress, "0 or more")
	}
	return nil
}

// limit is the limit of the settings.
func (c Connections) limit(log *slog.Logger) *web.ConnLimit {
	if files := process.MaxFiles(); files > 0 && c.MaxConnections > files/2 {
		log.Warn("more connections are allowed than half of the files that this process may open: raise ulimit -n, or lower --max-connections", "max_connections", c.MaxConnections, "files", files)
	}
	return web.NewConnLimit(c.MaxConnections, c.MaxConnectionsPerAddress, log)
}

// StreamForm is how /stream answers a program that does not say what it reads.
type StreamForm struct {
	StreamFormat string `flag:"stream-format" env:"FLIGHTLINE_STREAM_FORMAT" default:"array" help:"form of /stream where neither the request nor its endpoint decides: array (the contract's) or object (what most programs that poll by hand read)"`
}

func (s StreamForm) check() error {
	if s.StreamFormat != "array" && s.StreamFormat != "object" {
		return wrong("stream-format", s.StreamFormat, "array or object")
	}
	return nil
}

// LogSizes bound what is kept besides jobs.
type LogSizes struct {
	EventsMaxBytes      int64         `flag:"events-max-bytes" env:"FLIGHTLINE_EVENTS_MAX_BYTES" default:"4294967296" help:"bytes that the log of events may take, 16777216 or more; the oldest go first; 0 is no bound"`
	LogsAge             time.Duration `flag:"logs-retention" env:"FLIGHTLINE_LOGS_RETENTION" default:"72h" help:"how long what workers print is kept (1h or more); the same for all processes, the last one started decides"`
	LogsMaxBytes        int64         `flag:"logs-max-bytes" env:"FLIGHTLINE_LOGS_MAX_BYTES" default:"268435456" help:"bytes that what workers print may take, 16777216 or more, which NATS reserves; each partition has a share; the oldest lines go first; 0 is no bound; the same for all processes"`
	DeliveriesMaxBytes  int64         `flag:"deliveries-max-bytes" env:"FLIGHTLINE_DELIVERIES_MAX_BYTES" default:"268435456" help:"bytes that the log of webhook deliveries may take, 16777216 or more; the oldest go first; 0 is no bound; each delivery takes 100 bytes of the memory of NATS too"`
	UndeliveredMaxBytes int64         `flag:"undelivered-max-bytes" env:"FLIGHTLINE_UNDELIVERED_MAX_BYTES" default:"4294967296" help:"bytes that webhooks may take which were given up or wait for a paused destination, 16777216 or more; the oldest go first and are never sent; 0 is no bound"`
}

// minLogBytes is the smallest bound of a log: it has to reach back some minutes.
const minLogBytes = 16 << 20

func (s LogSizes) check() error {
	for _, size := range []struct {
		flag string
		n    int64
	}{{"events-max-bytes", s.EventsMaxBytes}, {"logs-max-bytes", s.LogsMaxBytes}, {"deliveries-max-bytes", s.DeliveriesMaxBytes}, {"undelivered-max-bytes", s.UndeliveredMaxBytes}} {
		if size.n != 0 && size.n < minLogBytes {
			return wrong(size.flag, size.n, fmt.Sprintf("0, or %d or more", minLogBytes))
		}
	}
	return retentionInBounds("logs-retention", s.LogsAge)
}

// explicitZero is a setting as a package takes it for which 0 is its default, and -1 what 0
// means here.
func explicitZero[T int64 | time.Duration](setting T) T {
	if setting == 0 {
		return -1
	}
	return setting
}

// Config are the settings of `flightline dev`.
type Config struct {
	Listen        string `flag:"listen" env:"FLIGHTLINE_LISTEN" default:"127.0.0.1:8080" help:"address for HTTP; port 0 takes a free one"`
	Data          string `flag:"data" env:"FLIGHTLINE_DATA" default:".flightline" help:"folder that keeps everything; made if it is not there"`
	APIKey        string `flag:"api-key" env:"FLIGHTLINE_API_KEY" secret:"yes" help:"API key of an administrator, 8 to 512 bytes without control characters and without a space at its ends; by default a random one is made once and kept"`
	Host          string `flag:"host" env:"FLIGHTLINE_HOST" help:"names, with commas between them, by which HTTP and metrics may be asked besides those of loopback; without any, a listener that is not on loopback may be asked by every name"`
	NATSListen    string `flag:"nats-listen" env:"FLIGHTLINE_NATS_LISTEN" help:"address for NATS clients, or off; 127.0.0.1:4222 by default, or a free port if that is taken"`
	Sync          string `flag:"sync" env:"FLIGHTLINE_SYNC" default:"auto" help:"when an accepted job is on disk: always (before the answer, each write by itself), group (before the answer, one fsync for all who wait), interval (within 2 minutes: a power loss loses jobs) or auto: group, and always where the file system has no hard links"`
	Limits        string `flag:"limits" env:"FLIGHTLINE_LIMITS" default:"default" help:"rate limits of the queue API: default (the contract's), off, a JSON file, or the JSON itself; see operating.md"`
	MetricsListen string `flag:"metrics-listen" env:"FLIGHTLINE_METRICS_LISTEN" help:"address for Prometheus, /metrics without a key, or off; 127.0.0.1:9464 by default, or a free port if that is taken"`
	Drivers       string `flag:"drivers" env:"FLIGHTLINE_DRIVERS" default:"process" help:"what starts workers of endpoints here, with commas between them: process (an endpoint's command runs on this host), docker, none"`
	Catalog       string `flag:"price-catalog" env:"FLIGHTLINE_PRICE_CATALOG" old:"catalog" help:"JSON file with prices and places of machines; see pods.md"`
	StreamForm
	Traces
	LogSizes
	NoDemo    bool   `flag:"no-demo" env:"FLIGHTLINE_NO_DEMO" help:"do not make the endpoint echo, nor run its worker and a first job"`
	LogLevel  string `flag:"log-level" env:"FLIGHTLINE_LOG_LEVEL" default:"warn" help:"least important lines to log: debug, info, warn or error"`
	LogFormat string `flag:"log-format" env:"FLIGHTLINE_LOG_FORMAT" default:"text" help:"form of log lines: text or json"`
	Connections
	TLS
	Engine
	Ending
	reaper  []string // as in Fleets
	program string   // as the user started it
}

// ServeConfig are the settings of `flightline serve`.
type ServeConfig struct {
	Listen        string        `flag:"listen" env:"FLIGHTLINE_LISTEN" default:"127.0.0.1:8080" help:"address for HTTP; port 0 takes a free one"`
	Replicas      int           `flag:"replicas" env:"FLIGHTLINE_REPLICAS" default:"1" help:"copies of each stream: 1 on one NATS server, 3 in a cluster"`
	CreateStreams string        `flag:"create-streams" env:"FLIGHTLINE_CREATE_STREAMS" old:"streams" default:"true" help:"true makes the streams and buckets if they are not there; false waits, up to two minutes, until another process has: for a user who may not make them"`
	Partitions    int           `flag:"partitions" env:"FLIGHTLINE_PARTITIONS" default:"1" help:"streams that share the records of all endpoints, 1 to 1024; it may grow, and a smaller number than there are changes nothing"`
	EventsAge     time.Duration `flag:"events-retention" env:"FLIGHTLINE_EVENTS_RETENTION" old:"events-age" default:"168h" help:"how long events can be read (1h or more); the same for all processes, the last one started decides"`
	LogSizes
	DrainDelay    time.Duration `flag:"drain-delay" env:"FLIGHTLINE_DRAIN_DELAY" default:"0s" help:"how long to serve on, at most 1m, after SIGTERM made /readyz answer 503: as long as the balancer in front needs to notice"`
	BootstrapKey  string        `flag:"bootstrap-key" env:"FLIGHTLINE_BOOTSTRAP_KEY" secret:"yes" help:"API key of an administrator to put in at each start, 8 to 512 bytes without control characters and without a space at its ends; none by default"`
	Limits        string        `flag:"limits" env:"FLIGHTLINE_LIMITS" default:"default" help:"rate limits of the queue API: default (the contract's), off, a JSON file, or the JSON itself; see operating.md"`
	MetricsListen string        `flag:"metrics-listen" env:"FLIGHTLINE_METRICS_LISTEN" help:"address for Prometheus, /metrics without a key, or off; 127.0.0.1:9464 by default, or a free port if that is taken"`
	Catalog       string        `flag:"price-catalog" env:"FLIGHTLINE_PRICE_CATALOG" old:"catalog" help:"JSON file with prices and places of machines; see pods.md"`
	StreamForm
	Connections
	TLS
	TLSClientCA string `flag:"tls-client-ca" env:"FLIGHTLINE_TLS_CLIENT_CA" help:"path of CA certificates, as PEM; each client, Prometheus too, must then show a certificate that they signed, besides its key"`
	NATS
	Webhooks
	Fleets
	Console
	LogLevel  string `flag:"log-level" env:"FLIGHTLINE_LOG_LEVEL" default:"info" help:"least important lines to log: debug, info, warn or error"`
	LogFormat string `flag:"log-format" env:"FLIGHTLINE_LOG_FORMAT" default:"text" help:"form of log lines: text or json"`
}

// A struct of settings says where each comes from: `flag` names its flag,
// `env` its variable, `default` what holds without either, `help` what it
// means. One with `secret` is never shown. `old` is the flag's former name, which
// still works, as does its variable. Other fields are not exported.

// settingsIn are the settings of such a struct, those of its parts included.
func settingsIn(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Anonymous || !f.IsExported() })
}

// configure gives the command a flag for each of the settings, which already
// hold what the environment says. What is wrong there is reported when the command
// runs, so that others can be run all the same. settings points to a struct.
func configure(c *cobra.Command, environment map[string]string, settings any, run func(*cobra.Command, []string) error) {
	renamed := map[string]pflag.NormalizedName{}
	environment = maps.Clone(environment)
	findRenamed(reflect.TypeOf(settings).Elem(), renamed, environment)
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return cmp.Or(renamed[name], pflag.NormalizedName(name))
	})
	wrong := addFlags(c.Flags(), settings, environment)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if wrong != nil {
			return &cli.UsageError{Err: wrong}
		}
		return run(cmd, args)
	}
}

// findRenamed fills names with the settings' old flags, and gives a variable
// that is set by its old name only its new one.
func findRenamed(settings reflect.Type, names map[string]pflag.NormalizedName, environment map[string]string) {
	for _, field := range settingsIn(settings) {
		old := field.Tag.Get("old")
		if old == "" {
			continue
		}
		names[old] = pflag.NormalizedName(field.Tag.Get("flag"))
		value, set := environment[oldVariable(old)]
		if _, too := environment[field.Tag.Get("env")]; set && !too {
			environment[field.Tag.Get("env")] = value
		}
	}
}

// Variables are the names of all variables that commands of this package read, the old
// ones included.
func Variables() []string {
	var names []string
	for _, settings := range []any{Config{}, ServeConfig{}, WorkConfig{}, RestoreConfig{}, DoctorConfig{}, NATSConfig{}} {
		for _, field := range settingsIn(reflect.TypeOf(settings)) {
			if old := field.Tag.Get("old"); old != "" {
				names = append(names, oldVariable(old))
			}
			if name := field.Tag.Get("env"); strings.HasPrefix(name, "FLIGHTLINE_") {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// oldVariable is the former variable of a setting, from its former flag.
func oldVariable(flag string) string {
	return "FLIGHTLINE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// addFlags adds a flag for each of the settings, which become what the environment says, else
// their default. The error is that of the first variable whose value its setting cannot have.
func addFlags(f *pflag.FlagSet, settings any, environment map[string]string) (wrong error) {
	all := reflect.ValueOf(settings).Elem()
	for _, field := range settingsIn(all.Type()) {
		name, variable := field.Tag.Get("flag"), field.Tag.Get("env")
		help := fmt.Sprintf("%s [%s]", field.Tag.Get("help"), variable)
		switch to := all.FieldByIndex(field.Index).Addr().Interface().(type) {
		case *string:
			f.StringVar(to, name, "", help)
		case *int:
			f.IntVar(to, name, 0, help)
		case *int64:
			f.Int64Var(to, name, 0, help)
		case *bool:
			f.BoolVar(to, name, false, help)
		case *time.Duration:
			f.DurationVar(to, name, 0, help)
		default:
			panic(fmt.Sprintf("settings: no flag for %s of type %T", field.Name, to))
		}
		flag := f.Lookup(name)
		if text := cmp.Or(environment[variable], field.Tag.Get("default")); text != "" && flag.Value.Set(text) != nil {
			wrong = cmp.Or(wrong, fmt.Errorf("%s: must be %s", variable, cli.FlagForm(flag.Value)))
		}
		flag.DefValue = flag.Value.String()
		if field.Tag.Get("secret") != "" {
			flag.DefValue = "" // help must not show it
			cli.SecretFlag(f, name)
		}
	}
	return wrong
}
