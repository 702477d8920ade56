package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/streams"
)

// byDoctor is what to do where something is missing or differs.
const byDoctor = "doctor --fix, with the same --replicas, --partitions and --events-age as serve"

// streams compares what there is with what should be, and returns what there is,
// nil if it cannot be known.
func (x *exam) streams(ctx context.Context, endpoints []endpoint.Endpoint) map[string]*jetstream.StreamInfo {
	there := map[string]*jetstream.StreamInfo{}
	list := x.js.ListStreams(ctx)
	for info := range list.Info() {
		there[info.Config.Name] = info
	}
	if err := list.Err(); err != nil {
		x.add("streams", Fail, err.Error(), "let this user ask for $JS.API.STREAM.LIST")
		return nil
	}
	x.durability(there)
	if assets := assetsOf(there); assets > 0 {
		state, text, hint := crowded(assets)
		x.add("raft groups", state, text, hint)
	}
	before := len(x.report.Findings)
	wanted := streams.AllWanted(x.cfg.streams(), endpoints)
	for _, w := range wanted {
		got := there[w.Config.Name]
		if got == nil {
			text, hint := missingStream(w.Config.Name)
			x.add("stream "+w.Config.Name, Fail, text, hint)
			continue
		}
		if diff := streams.Differences(w.Config, got.Config); len(diff) > 0 {
			x.add("stream "+w.Config.Name, Warn, strings.Join(diff, "; "), byDoctor)
		}
		x.consumers(ctx, w)
		x.replicas(got)
		x.recovered(got)
	}
	if len(x.report.Findings) == before {
		x.add("streams", OK, fmt.Sprintf("%d streams and buckets are as they should be", len(wanted)), "")
	}
	x.stores(ctx, there)
	return there
}

// missingStream says what it means that a stream is missing, and what to do.
func missingStream(name string) (text, hint string) {
	if _, queue := streams.EndpointOfQueue(name); queue {
		return "missing or unreadable: calls that need this queue are refused, its jobs are kept as they are",
			"look for '" + name + "' in the log of NATS and for its files; then " + byDoctor + ": what its files hold comes back, else the jobs that waited are gone"
	}
	return "missing", byDoctor
}

// lossShown is how long the loss of a queue is shown: no job of then is left after it.
const lossShown = job.MaxTTL + time.Hour

// recovered looks for a queue that lost messages.
func (x *exam) recovered(info *jetstream.StreamInfo) {
	if at := streams.Recovered(info.Config.Metadata); time.Since(at) < lossShown {
		x.add("stream "+info.Config.Name, Warn, "it was lost or damaged: found "+at.UTC().Format(time.RFC3339),
			"jobs that waited then may be gone: see the log of control, or of dev; this line ends after "+lossShown.String())
	}
}

func (x *exam) consumers(ctx context.Context, w streams.Wanted) {
	for _, want := range w.Consumers {
		name := fmt.Sprintf("consumer %s of %s", want.Durable, w.Config.Name)
		got, err := x.js.Consumer(ctx, w.Config.Name, want.Durable)
		switch {
		case notFound(err):
			x.add(name, Fail, "missing: nothing is handed out", byDoctor)
		case err != nil:
			x.add(name, Fail, err.Error(), "")
		default:
			if diff := streams.ConsumerDifferences(want, got.CachedInfo().Config); len(diff) > 0 {
				x.add(name, Warn, strings.Join(diff, "; "), byDoctor)
			}
		}
	}
}

// replicas looks for copies that are away or behind.
func (x *exam) replicas(info *jetstream.StreamInfo) {
	if info.Cluster == nil || info.Config.Replicas <= 1 {
		return
	}
	if info.Cluster.Leader == "" {
		x.add("stream "+info.Config.Name, Fail, "no leader", "two of its three servers must run")
	}
	for _, peer := range info.Cluster.Replicas {
		switch {
		case peer.Offline:
			x.add("stream "+info.Config.Name, Fail, "the copy on "+peer.Name+" is offline",
				"look at that server: it is away, or has switched JetStream off after a full disk until it is restarted")
		case !peer.Current:
			x.add("stream "+info.Config.Name, Warn, fmt.Sprintf("the copy on %s is not current (%d behind)", peer.Name, peer.Lag), "look at that server")
		}
	}
}

// queues looks for endpoints and queues that lack each other.
func (x *exam) queues(there map[string]*jetstream.StreamInfo, endpoints []endpoint.Endpoint) {
	known := map[string]bool{}
	for _, e := range endpoints {
		known[streams.Jobs(e.ID)] = true
		if e.Partition >= max(1, x.cfg.Partitions) {
			x.add("endpoint "+e.ID, Warn, fmt.Sprintf("it is in partition %d", e.Partition), fmt.Sprintf("give doctor and serve --partitions %d or more", e.Partition+1))
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
		x.add("queue "+name, Warn, fmt.Sprintf("it has %d messages and no endpoint", there[name].State.Msgs), "make the endpoint again, or delete the stream")
	}
	if len(lost) == 0 {
		x.add("endpoints", OK, fmt.Sprintf("%d endpoints, no queue without one", len(endpoints)), "")
	}
}

// mostSilent is how old a heartbeat may be; the bucket forgets older ones.
const mostSilent = 3 * registry.BeatEvery

// instances looks at who beats. The bucket forgets those that do not.
func (x *exam) instances(ctx context.Context) {
	kv, err := x.js.KeyValue(ctx, streams.BucketInstances)
	if err != nil {
		return // told as a missing stream
	}
	keys, err := kv.ListKeys(ctx)
	if err != nil {
		x.add("instances", Warn, err.Error(), "")
		return
	}
	alive, stale := 0, 0
	for key := range keys.Keys() {
		entry, err := kv.Get(ctx, key)
		switch {
		case err != nil: // gone since
		case time.Since(entry.Created()) > mostSilent+mostOffset:
			stale++
		default:
			alive++
		}
	}
	if stale > 0 {
		x.add("instances", Warn, fmt.Sprintf("%d beat, %d do not and are still listed", alive, stale), "the max age of "+streams.Bucket(streams.BucketInstances)+" or a clock is wrong")
		return
	}
	x.add("instances", OK, fmt.Sprintf("%d instances of api and gateway beat", alive), "")
}
