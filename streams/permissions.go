package streams

import (
	"slices"

	"flightline/shared/job"
)

// Role is who uses the bus, by what it does: the name of its user, too.
type Role string

// The roles. A worker here speaks NATS; a worker over HTTP needs no user.
const (
	RoleControl    Role = "control"
	RoleAPI        Role = "api"
	RoleGateway    Role = "gateway"
	RoleRecorder   Role = "recorder"
	RoleWebhook    Role = "webhook"
	RoleAutoscaler Role = "autoscaler"
	RoleConsole    Role = "console"
	RoleWorker     Role = "worker"
	// RoleReader may read events and nothing else. It has an account of its own.
	RoleReader Role = "reader"
	// RoleAdmin may do everything: doctor, backup, restore.
	RoleAdmin Role = "admin"
)

// Roles lists all of them.
func Roles() []Role {
	return []Role{RoleControl, RoleAPI, RoleGateway, RoleRecorder, RoleWebhook, RoleAutoscaler, RoleConsole, RoleWorker, RoleReader, RoleAdmin}
}

// InboxPrefix begins the inboxes of a role: no other role may listen there.
func InboxPrefix(r Role) string { return "_INBOX_" + string(r) }

// Access is what a role may do. Streams are named as the bus has them; Any
// stands for the queues of all endpoints, which are not known beforehand.
type Access struct {
	// Writes are the subjects that it publishes on.
	Writes []string
	// Reads are the streams of which it reads single messages.
	Reads []string
	// Follows are the streams of which it reads all messages, and single ones.
	Follows []string
	// Takes are the durable consumers that it shares, by stream.
	Takes map[string][]string
	// Counts are the streams whose consumers it counts.
	Counts []string
	// Removes are the streams of which it deletes messages, Purges those of
	// which it purges a subject.
	Removes, Purges []string
	// Lists lets it look at all streams in one request.
	Lists bool
	// Makes lets it make streams and Flightline's consumers, and delete the
	// queues of endpoints.
	Makes bool
	// Pauses lets it pause the consumers of the queues of endpoints.
	Pauses bool
	// Subscribes are the subjects of core NATS that it subscribes to.
	Subscribes []string
}

// Any stands for the queues of all endpoints.
const Any = "JOBS_*"

// parts are the streams of all partitions that name makes.
func parts(c Config, name func(int) string) []string {
	all := make([]string, 0, c.PartitionCount())
	for p := range c.PartitionCount() {
		all = append(all, name(p))
	}
	return all
}

func recordsOf(c Config, endpoint string) []string {
	return parts(c, func(p int) string { return recordsPrefix(p) + "r." + endpoint + ".>" })
}

func buckets(names ...string) []string {
	all := make([]string, 0, len(names))
	for _, name := range names {
		all = append(all, Bucket(name))
	}
	return all
}

func keysOf(names ...string) []string {
	all := make([]string, 0, len(names))
	for _, name := range names {
		all = append(all, "$KV."+name+".>")
	}
	return all
}

func classes() []string {
	var all []string
	for _, c := range job.Classes() {
		all = append(all, Consumer(c))
	}
	return all
}

// AccessOf is the table: what each role may do. The reader and the admin are
// not in it (EventReader; everything). endpoint is the worker's, "*" for those
// of all endpoints.
func AccessOf(c Config, r Role, endpoint string) Access {
	switch r {
	case RoleControl:
		return controlAccess(c)
	case RoleAPI:
		return apiAccess(c)
	case RoleGateway:
		return gatewayAccess(c)
	case RoleRecorder:
		return recorderAccess(c)
	case RoleWebhook:
		return webhookAccess(c)
	case RoleAutoscaler:
		return autoscalerAccess(c)
	case RoleConsole: // all else it asks the API for
		return Access{Writes: keysOf(BucketSessions, BucketActions, BucketInstances), Reads: buckets(BucketSessions), Follows: buckets(BucketActions)}
	case RoleWorker:
		return workerAccess(c, endpoint)
	case RoleReader, RoleAdmin:
	}
	return Access{}
}

// RoleOf returns the role that takes from a durable consumer of a stream that all
// endpoints share; shared is false for any other consumer.
func RoleOf(c Config, stream, consumer string) (role Role, shared bool) {
	for _, r := range Roles() {
		if slices.Contains(AccessOf(c, r, "*").Takes[stream], consumer) {
			return r, true
		}
	}
	return "", false
}

// Caches are the buckets that a role keeps a copy of, in the registry: what it
// does not need is not sent to it. nil stands for none.
func Caches(r Role) []string {
	switch r {
	case RoleControl, RoleAPI, RoleGateway:
		return []string{BucketEndpoints, BucketKeys, BucketWorkers, BucketTokens, BucketDestinations, BucketPods, BucketWorkerPods}
	case RoleWebhook:
		return []string{BucketEndpoints, BucketDestinations}
	case RoleRecorder:
		return []string{BucketEndpoints, BucketWorkers}
	case RoleAutoscaler:
		return []string{BucketEndpoints, BucketWorkers, BucketTokens, BucketPods, BucketWorkerPods}
	case RoleConsole, RoleWorker, RoleReader, RoleAdmin:
	}
	return nil
}

// jobStreams are the streams that a reader of jobs reads.
func jobStreams(c Config) []string {
	return append(append(append([]string{Any}, parts(c, Records)...), parts(c, Output)...), parts(c, Payloads)...)
}

func controlAccess(c Config) Access {
	return Access{
		Makes: true,
		Writes: slices.Concat(recordsOf(c, "*"), []string{"nudge.*.*", "webhooks.>"},
			keysOf(BucketEndpoints, BucketWorkerEndpoints, BucketKeys, BucketTokens, BucketWorkers, BucketInstances, BucketPods, BucketWorkerPods, BucketTemplates, BucketVolumes, BucketDestinations, BucketCounts, BucketGPUs)),
		Reads: append(jobStreams(c), Events, Webhooks, Undelivered, Deliveries, Scaling),
		Follows: append(buckets(BucketEndpoints, BucketWorkerEndpoints, BucketKeys, BucketTokens, BucketWorkers, BucketInstances, BucketPods, BucketWorkerPods, BucketTemplates,
			BucketVolumes, BucketDestinations, BucketCounts, BucketPositions, BucketLeaders, BucketMachines, BucketGPUs), Undelivered, Deliveries),
		Takes: map[string][]string{Any: classes()}, Counts: []string{Webhooks},
		Removes: []string{Any, Undelivered}, Purges: slices.Concat(parts(c, Payloads), parts(c, Logs), []string{Scaling, Stats, Undelivered, Deliveries}),
		Subscribes: []string{"moved.>"},
	}
}

func apiAccess(c Config) Access {
	due := map[string][]string{Any: classes()}
	for p := range c.PartitionCount() {
		due[Records(p)] = []string{DueConsumer}
	}
	return Access{
		Writes: slices.Concat(recordsOf(c, "*"), []string{"jobs.>", "payloads.>", "nudge.*.*", "holder.*.*"}, keysOf(BucketInstances, BucketIdempotency, BucketCursors)),
		Reads:  slices.Concat(jobStreams(c), parts(c, Logs), buckets(BucketIdempotency, BucketCursors), []string{Scaling, Stats, Deliveries, Undelivered, Webhooks}),
		Follows: append(buckets(BucketEndpoints, BucketKeys, BucketTokens, BucketWorkers, BucketInstances, BucketPods, BucketWorkerPods, BucketDestinations,
			BucketCounts, BucketPositions, BucketLeaders, BucketGPUs), Events),
		Takes: due, Lists: true, Removes: append(parts(c, Records), Any), Subscribes: []string{"moved.>", "emitted.>", "logged.>", AnyNudge, "holder.>"},
	}
}

func gatewayAccess(c Config) Access {
	return Access{
		Writes: slices.Concat(recordsOf(c, "*"), []string{"output.>", "payloads.>", "nudge.*.*", "holder.*.*"},
			keysOf(BucketTokens, BucketWorkers, BucketInstances, BucketWorkerPods)),
		Reads:   jobStreams(c),
		Follows: buckets(BucketEndpoints, BucketKeys, BucketTokens, BucketWorkers, BucketInstances, BucketPods, BucketWorkerPods, BucketDestinations, BucketTemplates),
		Takes:   map[string][]string{Any: classes()}, Removes: []string{Any}, Subscribes: []string{"moved.>", AnyNudge, "holder.>"},
	}
}

func recorderAccess(c Config) Access {
	return Access{
		Writes: slices.Concat(parts(c, func(p int) string { return recordsPrefix(p) + "r.>" }), []string{"events.>", "stats.>", "webhooks.>", "kept.>"},
			keysOf(BucketCounts, BucketPositions, BucketLeaders, BucketInstances)),
		Reads:   append(jobStreams(c), Webhooks, Undelivered, Stats),
		Follows: slices.Concat(parts(c, Records), []string{Events}, buckets(BucketEndpoints, BucketWorkers, BucketCounts, BucketPositions, BucketLeaders)),
		Removes: append(parts(c, Records), Any), Purges: append(parts(c, Payloads), parts(c, Output)...),
	}
}

func webhookAccess(c Config) Access {
	return Access{
		Writes:  append(keysOf(BucketDestinations, BucketInstances), "webhooks.>", "undelivered.>", "deliveries.>"),
		Reads:   append(parts(c, Payloads), Webhooks, Undelivered, Deliveries),
		Follows: append(buckets(BucketEndpoints, BucketDestinations), Undelivered, Deliveries),
		Takes:   map[string][]string{Webhooks: {WebhookConsumer}}, Removes: []string{Webhooks, Undelivered}, Purges: parts(c, Payloads),
	}
}

func autoscalerAccess(c Config) Access {
	return Access{
		Writes: append(keysOf(BucketLeaders, BucketPods, BucketWorkerPods, BucketTokens, BucketWorkers, BucketInstances, BucketMachines, BucketGPUs,
			BucketEndpoints, BucketWorkerEndpoints), "scaling.*", "logs.>", "$KV."+BucketPositions+".installation"),
		Reads:   append(parts(c, Logs), Scaling, Events, Any, Bucket(BucketPositions), Bucket(BucketWorkerEndpoints)),
		Follows: buckets(BucketEndpoints, BucketWorkers, BucketTokens, BucketInstances, BucketPods, BucketWorkerPods, BucketTemplates, BucketVolumes, BucketLeaders, BucketCounts, BucketMachines, BucketGPUs),
		Counts:  []string{Any}, Purges: []string{Scaling}, Pauses: true, Subscribes: []string{"jobs.>"},
	}
}

func workerAccess(c Config, endpoint string) Access {
	queue := Any
	if endpoint != "*" {
		queue = Jobs(endpoint)
	}
	return Access{
		Writes: slices.Concat(recordsOf(c, endpoint), []string{"output.*." + endpoint + ".>", "payloads.*." + endpoint + ".>", "logs.*." + endpoint + ".*", "nudge." + endpoint + ".*", "holder." + endpoint + ".*"},
			[]string{"$KV." + BucketWorkerPods + "." + endpoint + ".*", "$KV." + BucketWorkers + "." + endpoint + ".*"}),
		Reads: slices.Concat([]string{queue}, parts(c, Records), parts(c, Payloads), parts(c, Output), buckets(BucketWorkerEndpoints, BucketWorkerPods, BucketWorkers)),
		Takes: map[string][]string{queue: classes()}, Removes: []string{queue}, Subscribes: []string{"nudge." + endpoint + ".*", "holder." + endpoint + ".*"},
	}
}
