package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/admin"
	"flightline/services/api"
	"flightline/services/console"
	"flightline/services/control"
	"flightline/services/gateway"
	"flightline/services/recorder"
	"flightline/services/webhook"
	"flightline/shared/bus"
	"flightline/shared/bus/barrier"
	"flightline/shared/events"
	"flightline/shared/metrics"
	"flightline/shared/openapi"
	"flightline/shared/process"
	"flightline/shared/queue"
	"flightline/shared/ratelimit"
	"flightline/shared/registry"
	"flightline/shared/storehealth"
	"flightline/shared/telemetry"
	"flightline/shared/web"
	"flightline/streams"
)

// The roles that can be served.
const (
	roleAPI        = string(streams.RoleAPI)
	roleControl    = string(streams.RoleControl)
	roleGateway    = string(streams.RoleGateway)
	roleRecorder   = string(streams.RoleRecorder)
	roleWebhook    = string(streams.RoleWebhook)
	roleAutoscaler = string(streams.RoleAutoscaler)
	roleConsole    = string(streams.RoleConsole)
	roleAll        = "all"
)

// roles lists those that have a part of their own.
func roles() []string {
	return []string{roleAPI, roleControl, roleGateway, roleRecorder, roleWebhook, roleAutoscaler, roleConsole}
}

// plan is what a node is made from.
type plan struct {
	nc       *nats.Conn
	bus      bus.Config // what nc was made from
	listener net.Listener
	// roles are some of roles().
	roles                []string
	replicas, partitions int
	// waitForStreams leaves making them to another process.
	waitForStreams bool
	// eventsAge is how long events are kept, 0 for the default.
	eventsAge time.Duration
	logs      LogSizes
	// adminKey is put in, unless it is ""; replaceKey, if not nil, is called before that.
	adminKey   string
	replaceKey func(ctx context.Context, keys *registry.Keys, durable func() error) error
	// webhooks are the settings of the role, without the log.
	webhooks webhook.Config
	// fleets are the drivers of the role autoscaler.
	fleets *fleets
	// console is how the console reaches the API.
	console consolePlan
	// limits of the queue API's operations, nil for none.
	limits ratelimit.Table
	// streamFormat is the form of /stream where nothing else decides.
	streamFormat string
	// catalog is the path of the file of prices and places, "" for none.
	catalog string
	// own is this process's NATS, nil for one elsewhere.
	own *ownNATS
	// durable is where writers wait, nil if the server's setting decides.
	durable barrier.Func
	// version is what health reports.
	version string
	// drainDelay is how long it serves on after it said that it stops.
	drainDelay time.Duration
	// metricsAt is where metrics are scraped, nil for nowhere.
	metricsAt net.Listener
	// hosts and metricsHosts are the names that the listeners may be asked by.
	hosts, metricsHosts web.Hosts
	metrics             *metrics.Registry // of this attempt to assemble
	log                 *slog.Logger
	// tracer makes spans, nil makes none.
	tracer *telemetry.Tracer
}

// ownNATS is the NATS that a process runs itself: it restarts it when a stream refuses writes.
type ownNATS struct {
	// store is the folder of its store, checkPlace returns an error if that is no longer there.
	store      string
	checkPlace func() error
	// failed are streams that refuse writes for a reason NATS does not know.
	failed func() []storehealth.Failure
	// sync is when a write is on its disk: always, group or interval.
	sync string
}

// node is the roles of one process, ready to run.
type node struct {
	registry *registry.Registry
	queue    *queue.Queue
	events   *events.Log
	parts    []process.Part // in the order of their start
	first    []process.Part // to stop: those whose end needs the requests answered
	standing []web.Check    // of the roles of which one is active
	health   *web.Health
	console  *console.Service // nil without the role
	storage  *storehealth.Monitor
	space    *storehealth.SpaceMonitor
}

// assemble makes the streams exist and builds the roles on top. It starts
// nothing.
func assemble(ctx context.Context, p plan) (*node, error) {
	p.metrics = metrics.New(p.nc)
	js, err := jetstream.New(p.nc)
	if err != nil {
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	if p.partitions, err = partitionsOf(ctx, js, p.partitions); err != nil {
		return nil, err
	}
	if err := p.prepare(ctx, js); err != nil {
		return nil, err
	}
	n := &node{storage: monitorOf(p), space: p.spaceMonitor(js)}
	q, err := queue.New(ctx, p.nc, queue.Config{Replicas: p.replicas, Durable: p.durable, HasSpace: refuseWhile(n.space, storehealth.Space.Low), Observer: n.observer(p.metrics), Log: p.log})
	if err != nil {
		return nil, err
	}
	p.metrics.AddMissing(q.Missing)
	reg, err := registry.New(ctx, js, p.log)
	if err != nil {
		return nil, err
	}
	if err := p.replaceAdminKey(ctx, reg, q); err != nil {
		return nil, err
	}
	log, err := events.New(p.nc, js, p.log)
	if err != nil {
		return nil, err
	}
	n.registry, n.queue, n.events = reg, q, log
	host, _ := os.Hostname() // "" says that it is unknown
	reg.Instances.SetProgram(p.version, host)
	n.parts = []process.Part{
		{Name: "storage", Run: n.storage.Run},
		{Name: "queue", Run: q.Run},
		{Name: "registry", Run: func(ctx context.Context) error { return reg.Follow(ctx, cachesOf(p.roles)) }},
	}
	for _, role := range []struct {
		name string
		add  func() error
	}{
		{roleRecorder, func() error { return n.addRecorder(ctx, p, js) }},
		{roleWebhook, func() error { return n.addWebhooks(p) }},
		{roleAutoscaler, func() error { return n.addAutoscaler(ctx, p, js) }},
		{roleConsole, func() error { return n.addConsole(ctx, p, js) }},
	} {
		if !slices.Contains(p.roles, role.name) {
			continue
		}
		if err := role.add(); err != nil {
			return nil, err
		}
	}
	n.announce(p.roles)
	if err := n.serve(p, js); err != nil { //nolint:contextcheck // requests bring their own
		return nil, err
	}
	n.parts = append(n.parts, n.first...)
	return n, nil
}

// replaceAdminKey puts the administrator's key in, in place of the one before. Without one it
// warns where no request could be answered.
func (p plan) replaceAdminKey(ctx context.Context, reg *registry.Registry, q *queue.Queue) error {
	if p.replaceKey != nil {
		durable := func() error { return q.Bus().Durable(ctx, streams.Bucket(streams.BucketKeys)) }
		if err := p.replaceKey(ctx, reg.Keys, durable); err != nil {
			return err
		}
	}
	if p.adminKey == "" && slices.Contains(p.roles, roleControl) {
		keys, err := reg.Keys.List(ctx)
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			p.log.WarnContext(ctx, "there is no API key yet, so all requests are refused: start with --bootstrap-key-file, and make other keys with 'flightline key create'")
		}
	}
	return putAdminKey(ctx, reg, p.adminKey)
}

// prepare makes the streams, or checks that another process has. It logs those that were lost.
func (p plan) prepare(ctx context.Context, js jetstream.JetStream) error {
	if p.waitForStreams {
		return streams.Check(ctx, js, p.streams())
	}
	lost, err := streams.Lost(ctx, js, p.streams())
	if err != nil {
		return err
	}
	if err := streams.Apply(ctx, js, p.streams()); err != nil {
		return err
	}
	for _, name := range lost {
		p.log.ErrorContext(ctx, "a stream was missing; it was made again, with what NATS still had of it: unless this version is the first that has it, look at NATS, and restore a backup if you need what is gone",
			"stream", name, "means", admin.MeaningOfLoss(name))
	}
	return nil
}

// someRoles are the roles of the process, nil if it has all.
func (p plan) someRoles() []string {
	if len(p.roles) == len(roles()) {
		return nil
	}
	return p.roles
}

// streams is what the streams are made with.
func (p plan) streams() streams.Config {
	return streams.Config{Replicas: p.replicas, Partitions: p.partitions, EventsAge: p.eventsAge, LogsAge: p.logs.LogsAge, LogsMaxBytes: explicitZero(p.logs.LogsMaxBytes)}
}

// cachesOf are the buckets that these roles keep copies of.
func cachesOf(roles []string) []string {
	var all []string
	for _, role := range roles {
		all = append(all, streams.Caches(streams.Role(role))...)
	}
	return all
}

// addRecorder adds the recorder, which stands by while another one is active.
func (n *node) addRecorder(ctx context.Context, p plan, js jetstream.JetStream) error {
	instance := uuid.NewString()
	election, err := registry.NewElection(ctx, js, roleRecorder, instance, p.log)
	if err != nil {
		return err
	}
	n.addStanding(roleRecorder, election, instance)
	s, err := recorder.New(recorder.Config{Partitions: p.partitions, EventsMaxBytes: p.logs.EventsMaxBytes, Counted: p.metrics.Counted, Log: p.log},
		recorder.Deps{Queue: n.queue, Events: n.events, Registry: n.registry, Election: election})
	if err != nil {
		return err
	}
	n.parts = append(n.parts, process.Part{Name: roleRecorder, Run: s.Run})
	p.metrics.AddLag(lagOf(s, election, instance)) //nolint:contextcheck // a scrape brings its own
	return nil
}

// bodyMemory is what large bodies may take of all memory, in bytes: a sixteenth, since the
// process takes about four times as much for them. 0 is unknown, and no bound of its own.
func bodyMemory(all int64) int { return int(min(all/16, web.MostBodyMemory)) }

// serve adds the parts of the roles that answer requests, HTTP last: it is
// what needs all others.
func (n *node) serve(p plan, js jetstream.JetStream) error {
	n.expose(p)
	cfg := web.Config{
		BodyMemory: bodyMemory(process.Memory()),
		Known:      n.known, Hosts: p.hosts, Observed: p.metrics.Answered, Log: p.log, Tracer: p.tracer,
		Roles: p.someRoles(),
	}
	gw, err := n.newGateway(p, &cfg)
	if err != nil {
		return err
	}
	app := web.New(cfg)
	n.health = n.healthOf(p, js)
	n.health.Routes(app)
	openapi.Routes(app)
	if gw != nil {
		gw.Routes(app)
		n.parts = append(n.parts, process.Part{Name: roleGateway, Run: gw.Run})
	}
	n.serveConsole(app)
	if slices.Contains(p.roles, roleControl) {
		if err := n.addControl(p, app, js); err != nil {
			return err
		}
	}
	if slices.Contains(p.roles, roleAPI) {
		if err := n.addAPI(p, app); err != nil {
			return err
		}
	}
	answering := httpPart(p, n.health, func(ctx context.Context) error { return web.Serve(ctx, app, p.listener) })
	answering.Waiting = func() string { return httpWaitsFor(p.drainDelay, int(app.Server().GetOpenConnectionsCount())) }
	n.parts = append(n.parts, answering)
	return nil
}

// addControl adds the role control and its routes, and the look for damage in a NATS elsewhere.
func (n *node) addControl(p plan, app *fiber.App, js jetstream.JetStream) error {
	catalog, err := catalogOf(p.catalog)
	if err != nil {
		return err
	}
	inspector, err := p.inspector(n)
	if err != nil {
		return err
	}
	s, err := control.New(control.Config{Partitions: p.partitions, VolumeRoot: p.fleets.settings.VolumeRoot, Version: p.version, Catalog: catalog, Log: p.log},
		control.Deps{Queue: n.queue, Registry: n.registry, Events: n.events, System: inspector.System})
	if err != nil {
		return err
	}
	s.Routes(app)
	n.parts = append(n.parts, process.Part{Name: roleControl, Run: s.Run})
	if p.own == nil { // else the server read its files itself
		n.parts = append(n.parts, p.verify(js, n.registry))
	}
	return nil
}

// addAPI adds the role api and its routes, and the end of jobs at their deadlines.
func (n *node) addAPI(p plan, app *fiber.App) error {
	s, err := api.New(api.Config{Limits: p.limits, StreamFormat: p.streamFormat, Log: p.log},
		api.Deps{Queue: n.queue, Registry: n.registry, Events: n.events})
	if err != nil {
		return err
	}
	s.Routes(app)
	deadlines := func(ctx context.Context) error { return n.queue.Deadlines(ctx, p.partitions) }
	n.parts = append(n.parts, process.Part{Name: "space", Run: n.space.Run}, process.Part{Name: roleAPI, Run: s.Run}, process.Part{Name: "deadlines", Run: deadlines})
	return nil
}

// maxPostBytes is the largest result that is read: one of 20 MB, as Python
// writes it. It takes no more memory than a body of 20 MB.
const maxPostBytes = 32 << 20

// newGateway makes the gateway, nil if it is not among the roles, and sets cfg up
// for it.
func (n *node) newGateway(p plan, cfg *web.Config) (*gateway.Service, error) {
	if !slices.Contains(p.roles, roleGateway) {
		return nil, nil //nolint:nilnil // no such role is no error
	}
	s, err := gateway.New(gateway.Config{Stale: p.metrics.Stale, HasSpace: refuseWhile(n.space, storehealth.Space.Scarce), Log: p.log, Tracer: p.tracer},
		gateway.Deps{Queue: n.queue, Registry: n.registry})
	if err != nil {
		return nil, err
	}
	if !slices.Contains(p.roles, roleAPI) { // which runs it
		n.parts = append(n.parts, process.Part{Name: "space", Run: n.space.Run})
	}
	cfg.BodyLimit, cfg.Oversized, cfg.Patient = maxPostBytes, s.Oversized, gateway.Patient
	cfg.Known = func(c *fiber.Ctx) error {
		if ofWorker, err := s.Known(c); ofWorker {
			return err
		}
		return n.known(c)
	}
	return s, nil
}

// known is the web.Config's: it returns nil for the key of a caller.
func (n *node) known(c *fiber.Ctx) error {
	if n.console != nil {
		if ours, err := n.console.Known(c); ours {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(c.UserContext(), web.AnswerWithin)
	defer cancel()
	_, err := n.registry.Keys.Check(ctx, web.Key(c))
	return err
}

// errDisconnected is what the check of the connection fails with, errNoLeader that of JetStream.
var (
	errDisconnected = errors.New("not connected")
	errNoLeader     = errors.New("no leader")
)

// hasLeader returns the check that a stream which every role needs has a leader.
func hasLeader(js jetstream.JetStream) func(context.Context) error {
	return func(ctx context.Context) error {
		s, err := js.Stream(ctx, streams.Bucket(streams.BucketEndpoints))
		if err != nil {
			return err
		}
		if bus.Leaderless(s.CachedInfo()) {
			return errNoLeader
		}
		return nil
	}
}

// healthOf is what the process says of itself. JetStream has to be answered by
// the leader of a stream that every role needs.
func (n *node) healthOf(p plan, js jetstream.JetStream) *web.Health {
	checks := []web.Check{
		{Name: "nats", Look: func(context.Context) error {
			if p.nc.Status() != nats.CONNECTED {
				return errDisconnected
			}
			return nil
		}},
		{Name: "jetstream", Look: hasLeader(js)},
		{Name: "storage", Look: func(context.Context) error { return n.takesWrites(p) }},
	}
	checks = append(checks, spaceCheck(n.space), web.Check{Name: "streams", Say: func(context.Context) string { return missingWord(n.queue.Missing()) }})
	return web.NewHealth(p.version, p.roles, append(checks, n.standing...)...)
}

// missingWord says how many streams were found missing; "" for none. The process
// stays ready: it serves the endpoints that have theirs.
func missingWord(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%d missing", len(names))
}

// addStanding adds to health whether this process is the active one of the role.
// A standby is as ready: it has nothing to answer.
func (n *node) addStanding(role string, election *registry.Election, instance string) {
	n.standing = append(n.standing, web.Check{Name: role, Say: func(ctx context.Context) string {
		leader, err := election.Active(ctx)
		switch {
		case errors.Is(err, registry.ErrNotFound):
			return "nobody is active"
		case err != nil:
			return "unknown"
		case leader.Instance == instance:
			return "active"
		}
		return "standby"
	}})
}

// httpPart returns the part that serves HTTP. When it is stopped, /readyz fails for
// the plan's drain delay first, while requests are still served.
func httpPart(p plan, h *web.Health, serve func(context.Context) error) process.Part {
	return process.Part{Name: "http", Grace: p.drainDelay + process.StopGrace, Run: func(ctx context.Context) error {
		drained, done := h.Drained(ctx, p.drainDelay)
		defer done()
		return serve(drained)
	}}
}

// httpWaitsFor says what the part of httpPart waits for when that is logged. The count is -1
// where the server has ended meanwhile.
func httpWaitsFor(drainDelay time.Duration, open int) string {
	connections := fmt.Sprintf("%d open connections", max(0, open))
	if drainDelay >= process.NoticeDelay {
		return fmt.Sprintf("--drain-delay %v, %s", drainDelay, connections)
	}
	return connections
}

// unready says that the process stops. It is the last part, the first to stop:
// those between it and HTTP may take long to end.
func unready(h *web.Health) process.Part {
	return process.Part{Name: "ready", Run: func(ctx context.Context) error {
		<-ctx.Done()
		h.Stop()
		return nil
	}}
}
