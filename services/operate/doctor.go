package operate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/streams"
)

// DoctorConfig is what the doctor takes for right.
type DoctorConfig struct {
	// Replicas, Partitions and EventsAge are the installation's settings, with
	// the defaults of streams.Config.
	Replicas, Partitions int
	EventsAge            time.Duration
	// Fix makes streams, consumers and buckets as they should be before it looks.
	// It takes no copy away from a stream that has more than Replicas.
	Fix bool
	// Deep reads every message of every stream, in bounded memory.
	Deep bool
	// Log hears what was fixed. Required.
	Log *slog.Logger
}

func (c DoctorConfig) streams() streams.Config {
	return streams.Config{Replicas: c.Replicas, Partitions: c.Partitions, EventsAge: c.EventsAge}
}

// State is how a check came out.
type State string

// States of a finding.
const (
	OK   State = "ok"
	Warn State = "warn"
	Fail State = "fail"
)

// Finding is what a check found.
type Finding struct {
	Check string `json:"check"`
	State State  `json:"state"`
	Text  string `json:"text"`
	// Hint is what to do about it, "" if nothing.
	Hint string `json:"hint,omitempty"`
}

// Report is all that was found.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Failed tells whether something has to be done.
func (r Report) Failed() bool {
	for _, f := range r.Findings {
		if f.State == Fail {
			return true
		}
	}
	return false
}

// within bounds each question that the doctor asks.
const within = 5 * time.Second

// exam is one run of the doctor.
type exam struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	cfg    DoctorConfig
	report Report
}

func (x *exam) add(check string, state State, text, hint string) {
	x.report.Findings = append(x.report.Findings, Finding{check, state, text, hint})
}

// Doctor looks at NATS and at what Flightline keeps there. What is wrong is in
// the report; an error means that it could not look at all, or that ctx ended
// while it read: then the report has what was found so far.
func Doctor(ctx context.Context, nc *nats.Conn, cfg DoctorConfig) (Report, error) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(within))
	if err != nil {
		return Report{}, fmt.Errorf("open jetstream: %w", err)
	}
	x := &exam{nc: nc, js: js, cfg: cfg}
	x.server()
	if !x.account(ctx) || !x.schema(ctx) {
		return x.report, nil
	}
	if cfg.Fix {
		if err := x.fix(ctx); err != nil {
			x.add("fix", Fail, err.Error(), "")
		}
	}
	endpoints, err := x.endpoints(ctx)
	x.clock(ctx)
	infos := x.streams(ctx, endpoints)
	switch {
	case err != nil:
		x.add("endpoints", Fail, err.Error(), "no queue was looked at: run the doctor again, or look at "+streams.Bucket(streams.BucketEndpoints))
	case infos != nil:
		x.queues(infos, endpoints)
	}
	x.instances(ctx)
	x.permissions(ctx)
	if cfg.Deep && infos != nil {
		err = x.deep(ctx, infos)
		return x.report, err
	}
	return x.report, nil
}

// fix makes the shared streams, and those of the endpoints if they are known, as
// they should be.
func (x *exam) fix(ctx context.Context) error {
	if err := streams.Apply(ctx, x.js, x.cfg.streams()); err != nil {
		return err
	}
	endpoints, err := x.endpoints(ctx)
	if err != nil {
		return fmt.Errorf("the queues were left as they are: %w", err)
	}
	for _, e := range endpoints {
		if err := streams.ApplyEndpoint(ctx, x.js, x.cfg.streams(), e); err != nil {
			return err
		}
	}
	x.cfg.Log.InfoContext(ctx, "streams, consumers and buckets applied", "endpoints", len(endpoints))
	return nil
}

// endpoints are those that exist, also those that are being deleted.
func (x *exam) endpoints(ctx context.Context) ([]endpoint.Endpoint, error) {
	table, err := registry.OpenTable[endpoint.Endpoint](ctx, x.js, streams.BucketEndpoints)
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return table.List(ctx)
}
