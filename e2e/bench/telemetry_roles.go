package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/valyala/fasthttp"
	"google.golang.org/protobuf/encoding/protowire"

	"flightline/shared/metrics"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/telemetry"
	"flightline/shared/telemetry/otlp"
	"flightline/shared/web"
)

// roleCollector takes spans, counts them and drops them.
const roleCollector = "collector"

// observed is what a process tells of itself. The zero value is nothing.
type observed struct {
	metrics *metrics.Registry
	at      net.Listener
	sender  *otlp.Sender
}

// observe starts what cfg asks for, as `flightline serve` has it.
func observe(ctx context.Context, cfg config, nc *nats.Conn, service string) (o observed, err error) {
	if cfg.Metrics {
		o.metrics = metrics.New(nc)
		if o.at, err = (&net.ListenConfig{}).Listen(ctx, "tcp", anyPort); err != nil {
			return o, err
		}
	}
	if cfg.OTLP != "" {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": cfg.OTLP}
		if cfg.Share != "" {
			env["OTEL_TRACES_SAMPLER"], env["OTEL_TRACES_SAMPLER_ARG"] = "parentbased_traceidratio", cfg.Share
		}
		o.sender, err = otlp.Open(ctx, env, service, "bench", log)
	}
	return o, err
}

func (o observed) tracer() *telemetry.Tracer { return o.sender.Tracer() }

func (o observed) observer() queue.Observer {
	if o.metrics == nil {
		return queue.Observer{}
	}
	return o.metrics.Observer()
}

// web is the configuration of an app.
func (o observed) web() web.Config {
	cfg := web.Config{Tracer: o.tracer()}
	if o.metrics != nil {
		cfg.Observed = o.metrics.Answered
	}
	return cfg
}

// serve is the part that answers scrapes, at the address; none if there are no
// metrics.
func (o observed) serve(q *queue.Queue, reg *registry.Registry) (address string, parts []func(context.Context) error) {
	if o.metrics == nil {
		return "", nil
	}
	o.metrics.AddFleet(metrics.Fleet{Queue: q, Registry: reg})
	return o.at.Addr().String(), []func(context.Context) error{
		func(ctx context.Context) error { return o.metrics.Serve(ctx, o.at, func(string) bool { return true }) },
	}
}

// serveCollector reads what is sent and says on request how many spans that
// were: so that none that was lost counts as cheap.
func serveCollector(ctx context.Context, _ config, w *wire) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", anyPort)
	if err != nil {
		return err
	}
	var spans atomic.Int64
	const most = 64 << 20
	server := &fasthttp.Server{MaxRequestBodySize: most, NoDefaultServerHeader: true, Handler: func(c *fasthttp.RequestCtx) {
		spans.Add(int64(spansIn(c.PostBody())))
		c.SetContentType("application/x-protobuf")
	}}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(l) }()
	err = w.ready(ready{HTTP: l.Addr().String()}, func(order) (sample, error) { return sample{N: int(spans.Load())}, nil })
	return errors.Join(err, server.Shutdown(), <-stopped)
}

// The fields of an ExportTraceServiceRequest on the way to its spans.
const (
	fieldResourceSpans = 1
	fieldScopeSpans    = 2
	fieldSpans         = 2
)

// spansIn counts the spans of a request and reads none of them.
func spansIn(body []byte) (n int) {
	for _, process := range messages(body, fieldResourceSpans) {
		for _, scope := range messages(process, fieldScopeSpans) {
			n += len(messages(scope, fieldSpans))
		}
	}
	return n
}

// messages are the fields of that number; nil from where b is broken.
func messages(b []byte, number protowire.Number) (all [][]byte) {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return all
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(field, kind, b)
		if size < 0 {
			return all
		}
		if field == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b)
			all = append(all, value)
		}
		b = b[size:]
	}
	return all
}
