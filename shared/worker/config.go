package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/telemetry"
)

// Handler runs one job. Its output is the job's: any value that encoding/json
// can encode; a json.RawMessage is passed on as it is; nil means that the job
// has no output. With an error the job is FAILED and the error's text is what
// the caller reads, so keep secrets out of it. A panic is a FAILED job too,
// its value and stack are in the log only. ErrDraining, once Run's ctx is done, gives the
// job back.
//
// It is called from Config.Concurrency goroutines.
type Handler func(ctx context.Context, j *Job) (output any, err error)

// Config says which jobs to run and how. Endpoint is required.
type Config struct {
	// Endpoint is the id of the endpoint whose jobs are run.
	Endpoint string

	// NATSURL, CredsFile, User and Password say where NATS is, as in package
	// bus. "" means nats://127.0.0.1:4222 without credentials.
	NATSURL, CredsFile, User, Password string
	// InboxPrefix and TLS are for a user who may listen to inboxes of its own
	// only, and for a NATS that wants certificates, as in package bus.
	InboxPrefix string
	TLS         bus.TLS
	// NC is a connection to use instead; Run leaves it open. It should have
	// been made by bus.Connect: with the defaults of nats.go an outage is
	// noticed after minutes.
	NC *nats.Conn

	// ID is the id of this worker, which callers see as workerId: the id of
	// its pod, if it has one. It matches [A-Za-z0-9_-]{1,128}, and no two
	// workers share one. "" means a random one.
	ID string
	// Concurrency is how many jobs run at once. 0 means 1.
	Concurrency int
	// Grace is how long running jobs may go on once Run's ctx is done; then
	// they are given back. 0 means 10 s, less than 0 none.
	Grace time.Duration
	// S3AllowNetworks may be reached by package worker/s3 besides public
	// addresses: a caller names the S3 server in the s3Config of a job, and the
	// worker connects to it from its own network. nil means public addresses
	// only. netguard.ParseNetworks reads them from text.
	S3AllowNetworks []netip.Prefix
	// Version of the program, shown with the worker. It may be empty.
	Version string
	// Image and Command are what the worker's pod shows as what it runs: keep
	// secrets out of them. Both may be empty.
	Image   string
	Command []string
	// Log gets what goes wrong, and each job at level debug. Inputs,
	// outputs and s3Config are never in it. nil means silence.
	Log *slog.Logger
	// LogsKept says that what this process prints is kept already, as by the driver that
	// started it: then Job.Logger and Job.Printed keep nothing themselves.
	LogsKept bool
	// Environment is that of the program, by name. Its secrets are hidden in lines that
	// are kept. It may be nil.
	Environment map[string]string
	// Tracer makes a span of each run, in which the handler is called. nil means
	// none.
	Tracer *telemetry.Tracer
	// OnReady is called once, when the worker is registered and asks for jobs.
	OnReady func()
	// OnDrain is called once, when the worker is drained by request: it takes no more jobs,
	// and Run returns nil when its last one has ended. nil does nothing.
	OnDrain func()
	// Sleep and Wake let an autoscaler put the worker to sleep while no job needs it, in
	// place of stopping it. Sleep is called while it runs no job, Wake before it asks for
	// jobs again, and both only in turn. If Sleep fails, Run logs why and returns nil; if
	// Wake fails, Run returns an ErrWake. Their contexts end after a minute, and 15 s before
	// pod.WakeTimeout. Both or neither are nil; nil means that it is stopped.
	Sleep, Wake func(context.Context) error
}

// MaxConcurrency bounds Config.Concurrency: each slot asks NATS for jobs.
const MaxConcurrency = 10_000

// DefaultGrace is what Config.Grace 0 means.
const DefaultGrace = 10 * time.Second

func (c Config) complete() (Config, error) {
	if !endpoint.ValidID(c.Endpoint) {
		return c, fmt.Errorf("%w: %q is no endpoint id", ErrConfig, c.Endpoint)
	}
	if c.ID != "" && !job.ID(c.ID).Valid() { // the same alphabet
		return c, fmt.Errorf("%w: %q is no worker id", ErrConfig, c.ID)
	}
	if c.Concurrency < 0 || c.Concurrency > MaxConcurrency {
		return c, fmt.Errorf("%w: concurrency %d: must be 0 to %d", ErrConfig, c.Concurrency, MaxConcurrency)
	}
	if (c.Sleep == nil) != (c.Wake == nil) {
		return c, fmt.Errorf("%w: Sleep and Wake must both be set, or neither", ErrConfig)
	}
	c.ID = cmp.Or(c.ID, uuid.NewString())
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	c.Grace = max(0, cmp.Or(c.Grace, DefaultGrace))
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Log = c.Log.With("endpoint", c.Endpoint, "worker", c.ID)
	if c.OnReady == nil {
		c.OnReady = func() {}
	}
	if c.OnDrain == nil {
		c.OnDrain = func() {}
	}
	return c, nil
}

// connect returns the connection to use, and what closes it if it is ours.
func (c Config) connect() (*nats.Conn, func(), error) {
	if c.NC != nil {
		return c.NC, func() {}, nil
	}
	nc, err := bus.Connect(bus.Config{
		URL: c.NATSURL, CredsFile: c.CredsFile, User: c.User, Password: c.Password,
		InboxPrefix: c.InboxPrefix, TLS: c.TLS,
		Name: "worker " + c.Endpoint + " " + c.ID, Log: c.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	return nc, nc.Close, nil
}

// encode is v as JSON, with a json.RawMessage as it is; nothing if v is nil.
func encode(v any) (json.RawMessage, error) {
	switch raw, ok := v.(json.RawMessage); {
	case v == nil, ok && len(raw) == 0:
		return nil, nil
	case !ok:
		return json.Marshal(v)
	case !json.Valid(raw):
		return nil, errInvalidJSON
	default:
		return raw, nil
	}
}
