package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/api"
	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/storehealth"
	"flightline/streams"
)

// DoctorConfig is what the doctor takes for right.
type DoctorConfig struct {
	// Streams are the installation's settings.
	Streams streams.Config
	// Fix makes streams, consumers and buckets as they should be before it looks.
	// It takes no copy away from a stream that has more than Streams.Replicas.
	Fix bool
	// Deep reads every message of every stream, in bounded memory.
	Deep bool
	// Sync is when a dev that is asked has a write on its disk: always, group or
	// interval; "" of another NATS, of which it cannot be known.
	Sync string
	// quick leaves out what asks for something of each stream.
	quick bool
	// Log gets what was fixed. Required.
	Log *slog.Logger
}

// State is how a check came out: OK, Warn or Fail.
type State = string

// States of a finding.
const (
	OK   State = "ok"
	Warn State = "warn"
	Fail State = "fail"
)

// Finding is what a check found.
type Finding = api.Finding

// Report is all that was found.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Failed reports whether something has to be done.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.State == Fail })
}

const (
	// askTimeout bounds each question of a page, and each try of a permission.
	askTimeout = 5 * time.Second
	// doctorTimeout bounds each question of the doctor: a JetStream whose disk is busy has
	// been silent for longer than a page may wait.
	doctorTimeout = 20 * time.Second
)

// timeout bounds a question.
func (c DoctorConfig) timeout() time.Duration {
	if c.quick {
		return askTimeout
	}
	return doctorTimeout
}

// checker is one run of the doctor.
type checker struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	cfg    DoctorConfig
	report Report
	silent []string // streams for which no server answered
}

func (x *checker) add(check string, state State, text, hint string) {
	x.report.Findings = append(x.report.Findings, Finding{Check: check, State: state, Text: text, Hint: hint})
}

// Doctor looks at NATS and at what Flightline keeps there. What is wrong is in
// the report; an error means that it could not look at all, or that ctx ended
// while it read: then the report has what was found so far.
func Doctor(ctx context.Context, nc *nats.Conn, cfg DoctorConfig) (Report, error) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(cfg.timeout()))
	if err != nil {
		return Report{}, fmt.Errorf("open jetstream: %w", err)
	}
	x := &checker{nc: nc, js: js, cfg: cfg}
	x.server()
	if !x.account(ctx) || !x.schema(ctx) {
		return x.report, nil
	}
	if cfg.Fix {
		if err := x.fix(ctx); err != nil {
			x.add("fix", Fail, err.Error(), "")
		}
	}
	before, err := x.endpoints(ctx)
	x.clock(ctx)
	infos := x.streams(ctx)
	after, again := x.endpoints(ctx)
	settled, endpoints := during(before, after)
	if infos != nil {
		x.compare(ctx, infos, settled)
		x.stores(ctx, infos)
	}
	switch err = cmp.Or(err, again); {
	case err != nil:
		x.add("endpoints", Fail, err.Error(), "no queue was looked at: run the doctor again, or look at "+streams.Bucket(streams.BucketEndpoints))
	case infos != nil:
		x.queues(infos, endpoints)
	}
	x.instances(ctx, len(endpoints))
	x.permissions(ctx)
	if cfg.Deep && infos != nil {
		err = x.deep(ctx, infos)
		return x.report, err
	}
	return x.report, nil
}

// fix makes the shared streams, and those of the endpoints if they are known, as
// they should be.
func (x *checker) fix(ctx context.Context) error {
	lost, err := streams.Lost(ctx, x.js, x.cfg.Streams)
	if err != nil {
		return err
	}
	if err := streams.Apply(ctx, x.js, x.cfg.Streams); err != nil {
		return err
	}
	for _, name := range lost {
		x.add("stream "+name, Warn, "it was missing and was made again: "+MeaningOfLoss(name), "restore a backup to an empty NATS if you need what is gone")
	}
	endpoints, err := x.endpoints(ctx)
	if err != nil {
		return fmt.Errorf("the queues were left as they are: %w", err)
	}
	for _, e := range endpoints {
		if err := streams.ApplyEndpoint(ctx, x.js, x.cfg.Streams, e); err != nil {
			return err
		}
	}
	x.cfg.Log.InfoContext(ctx, "streams, consumers and buckets applied", "endpoints", len(endpoints))
	return nil
}

// endpoints are those that exist, also those that are being deleted.
func (x *checker) endpoints(ctx context.Context) ([]endpoint.Endpoint, error) {
	table, err := registry.OpenTable[endpoint.Endpoint](ctx, x.js, streams.BucketEndpoints)
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return table.List(ctx)
}

const (
	// maxAssets is how many streams and consumers with several copies one server
	// should have, by what NATS's maintainers say: each is a raft group.
	maxAssets = 2000
	// assetsPerEndpoint is a queue and its two consumers.
	assetsPerEndpoint = 3
)

// assetsOf counts the raft groups of the server that has most of them: streams
// with several copies, and their consumers, which lie on the same servers.
func assetsOf(there map[string]*jetstream.StreamInfo) int {
	on, most := map[string]int{}, 0
	for _, info := range there {
		if info.Config.Replicas <= 1 || info.Cluster == nil {
			continue
		}
		servers := []string{info.Cluster.Leader}
		for _, peer := range info.Cluster.Replicas {
			servers = append(servers, peer.Name)
		}
		for _, name := range servers {
			on[name] += 1 + info.State.Consumers
			most = max(most, on[name])
		}
	}
	return most
}

// crowded judges the number of raft groups of a server.
func crowded(assets int) (state State, text, hint string) {
	text = fmt.Sprintf("%d of %d streams and consumers that a server should have with copies", assets, maxAssets)
	if assets*10 < maxAssets*8 {
		return OK, text, ""
	}
	return Warn, text, fmt.Sprintf("each endpoint takes %d, so about 650 endpoints fit on three servers: delete some, or use more servers or a second NATS", assetsPerEndpoint)
}

// stores looks for streams that refuse writes since one failed.
func (x *checker) stores(ctx context.Context, there map[string]*jetstream.StreamInfo) {
	asked, failures := 0, 0
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if _, ours := streams.PartOf(name); !ours {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, x.cfg.timeout())
		failed, err := storehealth.Check(asking, x.nc, name)
		cancel()
		if err != nil {
			x.add("stores", Warn, err.Error(), "let this user ask on "+bus.StreamPurge(name))
			return
		}
		asked++
		if failed != nil {
			failures++
			x.refuses(*failed)
		}
	}
	if failures == 0 {
		x.add("stores", OK, fmt.Sprintf("none of %d streams and buckets refuses writes", asked), "")
	}
}

// refuses notes a stream that refuses writes.
func (x *checker) refuses(f storehealth.Failure) {
	x.add("store of "+f.Stream, Fail, "it refuses all writes since one failed: "+f.Reason,
		"see that the disk of NATS takes writes, then restart NATS; flightline dev restarts its own by itself")
}

// byDoctor is what to do where something is missing or differs.
const byDoctor = "doctor --fix, with the same --replicas, --partitions, --events-retention and --logs-… as serve"

// streams are all for which a server answers, by name, nil if it cannot be known. It notes
// the others.
func (x *checker) streams(ctx context.Context) map[string]*jetstream.StreamInfo {
	asked := time.Now()
	there, silent, err := bus.StreamInfos(ctx, x.nc, x.cfg.timeout())
	x.silent = silent
	if err != nil {
		x.add("streams", Fail, err.Error(), "let this user ask for $JS.API.STREAM.LIST")
		return nil
	}
	x.clocks(there, asked, time.Now())
	return there
}

// compare compares what there is with what should be.
func (x *checker) compare(ctx context.Context, there map[string]*jetstream.StreamInfo, endpoints []endpoint.Endpoint) {
	x.durability(there)
	if assets := assetsOf(there); assets > 0 {
		state, text, hint := crowded(assets)
		x.add("raft groups", state, text, hint)
	}
	before := len(x.report.Findings)
	wanted, copies := streams.AllWanted(x.cfg.Streams, endpoints), map[string]*serverCopies{}
	for _, w := range wanted {
		got := there[w.Config.Name]
		if got == nil {
			text, hint := x.missing(w.Config.Name)
			x.add("stream "+w.Config.Name, Fail, text, hint)
			continue
		}
		if diff := streams.Differences(w.Config, got.Config); len(diff) > 0 {
			x.add("stream "+w.Config.Name, Warn, strings.Join(diff, "; "), byDoctor)
		}
		if !x.cfg.quick {
			x.consumers(ctx, w)
		}
		x.leader(got)
		sortCopies(copies, got)
		x.recovered(got)
	}
	x.copies(copies)
	if len(x.report.Findings) == before {
		x.add("streams", OK, fmt.Sprintf("%d streams and buckets are as they should be", len(wanted)), "")
	}
}

// missing says what it means that a stream is not listed, and what to do.
func (x *checker) missing(name string) (text, hint string) {
	if slices.Contains(x.silent, name) {
		return "no server answers for it", "by itself that is no loss: its servers elect a leader, or are away; run the doctor again in half a minute, then look at the servers of NATS"
	}
	if _, queue := streams.EndpointOfQueue(name); queue {
		return "missing or unreadable: calls that need this queue are refused, its jobs are kept as they are",
			"look for '" + name + "' in the log of NATS and for its files; then " + byDoctor + ": what its files hold comes back, else the jobs that waited are gone"
	}
	return "missing", byDoctor
}

// lossShown is how long the loss of a queue is shown: no job of then is left after it.
const lossShown = job.MaxTTL + time.Hour

// recovered looks for a queue that lost messages.
func (x *checker) recovered(info *jetstream.StreamInfo) {
	if at := streams.Recovered(info.Config.Metadata); time.Since(at) < lossShown {
		x.add("stream "+info.Config.Name, Warn, "it was lost or damaged: found "+at.UTC().Format(time.RFC3339),
			"jobs that waited then may be gone: see the log of control, or of dev; this line ends after "+lossShown.String())
	}
}

func (x *checker) consumers(ctx context.Context, w streams.Wanted) {
	for _, want := range w.Consumers {
		got, err := x.js.Consumer(ctx, w.Config.Name, want.Durable)
		if errors.Is(err, jetstream.ErrStreamNotFound) { // it was removed meanwhile
			return
		}
		x.checkConsumer(w.Config.Name, want, got, err)
	}
}

// checkConsumer compares a consumer with what it should be; err is that of the question.
func (x *checker) checkConsumer(stream string, want jetstream.ConsumerConfig, got jetstream.Consumer, err error) {
	name := fmt.Sprintf("consumer %s of %s", want.Durable, stream)
	switch {
	case notFound(err):
		x.add(name, Fail, "missing: nothing is handed out", byDoctor)
	case err != nil:
		x.add(name, Fail, err.Error(), "")
	default:
		info := got.CachedInfo()
		if diff := streams.ConsumerDifferences(want, info.Config); len(diff) > 0 {
			x.add(name, Warn, strings.Join(diff, "; "), byDoctor)
		}
		if role, shared := streams.RoleOf(x.cfg.Streams, stream, want.Durable); shared && unclaimedMessages(info) > 0 {
			x.add(name, Warn, fmt.Sprintf("%d messages wait and nobody asks for them", unclaimedMessages(info)), "start the role "+string(role))
		}
	}
}

// maxInHand is how long after the last delivery of a consumer what it has handed out may be in
// hand while nobody asks for more: more than twice its ack wait.
const maxInHand = 2 * time.Minute

// unclaimedMessages is how many messages a consumer has of which nobody takes any, 0 if somebody
// does. What was handed out to a process that is gone stays handed out until another one asks.
func unclaimedMessages(info *jetstream.ConsumerInfo) uint64 {
	handedOut, last := uint64(max(0, info.NumAckPending)), info.Delivered.Last
	inHand := handedOut > 0 && last != nil && info.TimeStamp.Sub(*last) <= maxInHand
	if info.NumWaiting > 0 || inHand {
		return 0
	}
	return info.NumPending + handedOut
}

// queues looks for endpoints and queues that lack each other.
func (x *checker) queues(there map[string]*jetstream.StreamInfo, endpoints []endpoint.Endpoint) {
	known := map[string]bool{}
	for _, e := range endpoints {
		known[streams.Jobs(e.ID)] = true
		if e.Partition >= x.cfg.Streams.PartitionCount() {
			x.add("endpoint "+e.ID, Warn, fmt.Sprintf("it is in partition %d", e.Partition), fmt.Sprintf("give doctor and serve --partitions %d or more", e.Partition+1))
		}
	}
	now := time.Now()
	for _, e := range endpoints {
		if e.PauseReason != "" && e.Paused(now) {
			x.add("endpoint "+e.ID, Warn, "it has paused itself: "+e.PauseReason, "mend what fails, then run: flightline endpoint resume "+e.ID)
		}
	}
	var lost []string
	for name := range there {
		if part, ours := streams.PartOf(name); ours && part == streams.PartJobs && !known[name] {
			lost = append(lost, name)
		}
	}
	slices.Sort(lost)
	for _, name := range lost {
		id, _ := streams.EndpointOfQueue(name)
		x.add("queue "+name, Warn, fmt.Sprintf("it has %d messages and no endpoint", there[name].State.Msgs), "restore a backup to an empty NATS, or remove it and cancel its jobs: flightline endpoint delete "+id+" --force; while it has jobs, no endpoint of this id can be created")
	}
	if len(lost) == 0 {
		x.add("endpoints", OK, fmt.Sprintf("%d endpoints, no queue without one", len(endpoints)), "")
	}
}

// maxBeatAge is how old a heartbeat may be; the bucket forgets older ones.
const maxBeatAge = 3 * registry.BeatEvery

// instances looks whether an instance takes jobs in, which api and gateway do, and whether a
// recorder runs. The bucket forgets those that do not beat.
func (x *checker) instances(ctx context.Context, endpoints int) {
	beats, err := bus.Bind(x.js.Conn()).LastOfEach(ctx, streams.Bucket(streams.BucketInstances), streams.KeySubject(streams.BucketInstances, ">"))
	switch {
	case errors.Is(err, bus.ErrMissing): // told as a missing stream
		return
	case err != nil:
		x.add("instances", Warn, err.Error(), "")
		return
	}
	alive, stale, recorders := 0, 0, 0
	for _, m := range beats {
		switch role := beatOf(m.Data); {
		case len(m.Data) == 0: // it has left
		case time.Since(m.Time) > maxBeatAge+maxClockOffset:
			stale++
		case role == streams.RoleAPI || role == streams.RoleGateway:
			alive++
		case role == streams.RoleRecorder:
			recorders++
		}
	}
	if recorders == 0 && endpoints > 0 {
		x.add("recorder", Warn, fmt.Sprintf("no recorder beats, and there are %d endpoints", endpoints),
			"start the role recorder: no webhook is queued, totals and events stand still, and finished jobs stay on the disk")
	}
	switch {
	case stale > 0:
		x.add("instances", Warn, fmt.Sprintf("%d beat, %d do not and are still listed", alive, stale), "the max age of "+streams.Bucket(streams.BucketInstances)+" or a clock is wrong")
	case alive == 0 && endpoints > 0:
		x.add("instances", Warn, fmt.Sprintf("no instance of api or gateway beats, and there are %d endpoints", endpoints), "start the roles: nobody takes jobs in")
	default:
		x.add("instances", OK, fmt.Sprintf("%d instances of api and gateway beat", alive), "")
	}
}

// beatOf is the role of a heartbeat, "" if it cannot be read.
func beatOf(value []byte) streams.Role {
	var i registry.Instance
	if json.Unmarshal(value, &i) != nil {
		return ""
	}
	return streams.Role(i.Role)
}
