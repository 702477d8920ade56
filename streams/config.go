package streams

import (
	"cmp"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

// Config is what differs between installations.
type Config struct {
	// Replicas is 1 on a single node and 3 in a cluster. 0 means 1.
	Replicas int
	// Partitions is how many streams share the records, output and payloads of
	// all endpoints. 0 means 1. It may grow, never shrink.
	Partitions int
	// EventsAge is how long events are kept. 0 means 7 days.
	EventsAge time.Duration
	// LogsAge is how long what workers print is kept. 0 means 3 days.
	LogsAge time.Duration
	// LogsMaxBytes bounds it, of all partitions together; each has 16 MiB at least.
	// 0 means 256 MiB, less than 0 no bound.
	LogsMaxBytes int64
}

func (c Config) replicas() int { return max(1, c.Replicas) }

// PartitionCount is Partitions with its default.
func (c Config) PartitionCount() int { return max(1, c.Partitions) }

// Names of the buckets.
const (
	BucketEndpoints = "endpoints"
	// BucketWorkerEndpoints is what workers may read of them.
	BucketWorkerEndpoints = "worker_endpoints"
	BucketKeys            = "keys"
	BucketWorkers         = "workers"
	// BucketTokens has a value for each worker that speaks HTTP, by endpoint and id.
	BucketTokens    = "tokens"
	BucketInstances = "instances"
	// BucketLeaders says which instance of a role is active; a value that is
	// not renewed vanishes.
	BucketLeaders = "leaders"
	// BucketCounts has one value per endpoint, made by folding the events.
	BucketCounts = "counts"
	// BucketPositions says how far the recorder has come, and has the id of the
	// installation.
	BucketPositions = "positions"
	// BucketIdempotency remembers Idempotency-Keys.
	BucketIdempotency = "idempotency"
	// BucketSessions has the sessions of the console, sealed with what only their cookies
	// hold.
	BucketSessions = "sessions"
	// BucketActions has how far the console has come with actions on many jobs.
	BucketActions = "actions"
	// BucketCursors has values with a ttl of their own each (CursorSubject).
	BucketCursors = "cursors"
)

// Bucket is the name of the stream that holds a bucket.
func Bucket(name string) string { return "KV_" + name }

const (
	// maxAge caps the life of a queue message: the longest ttl and an hour.
	maxAge = job.MaxTTL + time.Hour
	// Margin is how much longer than its queue message a record lives on disk,
	// so that a message met again always finds the record that decides.
	Margin = time.Hour
	// dueAge is how long a fired timer waits for an api instance.
	dueAge = 300 * time.Second
	// presence is how long a heartbeat counts.
	presence = 15 * time.Second
	// leaderTTL is how long a role stays with a leader that does not renew it.
	// Another one leads half a second later at the latest: within 15 s.
	leaderTTL = 12 * time.Second
	// idempotencyAge is how long an Idempotency-Key is remembered
	// (docs/design/product.md#idempotency-keys).
	idempotencyAge = 24 * time.Hour
	// SessionAge is how long a session of the console lasts.
	SessionAge = 12 * time.Hour
	// ActionAge is how long an action on many jobs can be looked at and continued.
	ActionAge = 24 * time.Hour
	// WebhooksAge is how long a webhook task may wait for its delivery.
	WebhooksAge = 7 * 24 * time.Hour
	// eventsAge is Config.EventsAge if that is 0.
	eventsAge = 7 * 24 * time.Hour
	// maxWaiting is how many open pulls a class may have: every free slot of
	// every worker holds one. The server's default, 512, would refuse the rest.
	maxWaiting = 100_000
)

// DueTTL is dueAge as the schedule header wants it.
func DueTTL() string { return strconv.Itoa(int(dueAge/time.Second)) + "s" }

// JobsConfig is the work queue of an endpoint (docs/design/data-model.md#queues).
func JobsConfig(c Config, id string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Jobs(id), Subjects: []string{AllJobs(id)},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: c.replicas(),
		MaxMsgsPerSubject: 1, MaxAge: maxAge, Duplicates: time.Second,
		AllowMsgTTL: true, AllowDirect: true, AllowAtomicPublish: true,
	}
}

// ConsumerConfig is the consumer of a class. AckWait is the lease; deliveries
// are unlimited because the record, not the server, counts lost workers. A
// consumer that exists keeps the pause it has (Pause), whatever PauseUntil is here.
// With more than 1024 jobs out, the server's look for ended leases breaks off at
// each ack or heartbeat that waits, and begins again 100 ms later
// (consumer.checkPending): it needs one gap between two of them that is as long
// as the look. A takeover may be late where heartbeats leave none.
func ConsumerConfig(e endpoint.Endpoint, c job.Class) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: Consumer(c), FilterSubject: ClassFilter(e.ID, c),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: e.Lease,
		MaxDeliver: -1, MaxAckPending: -1, MaxWaiting: maxWaiting, PauseUntil: pausedUntil(e),
	}
}

// recordsConfig is a KV bucket made by hand: no delete markers (they erase
// acknowledged writes, docs/design/jetstream.md#f5), old values discarded so that
// schedules are allowed, headers of records repeated for waiters. The server allows rollups with
// schedules in any case. No write is an atomic batch (docs/design/jetstream.md#f7): that setting
// is kept since streams that exist have it.
func recordsConfig(c Config, p int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Records(p), Subjects: []string{recordsPrefix(p) + ">"},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, Storage: jetstream.FileStorage, Replicas: c.replicas(),
		MaxMsgsPerSubject: 1, Duplicates: time.Second,
		AllowMsgTTL: true, AllowMsgSchedules: true, AllowDirect: true, AllowAtomicPublish: true, AllowRollup: true,
		RePublish: &jetstream.RePublish{Source: recordsPrefix(p) + "r.>", Destination: "moved.>", HeadersOnly: true},
	}
}

func outputConfig(c Config, p int) jetstream.StreamConfig {
	subjects := "output." + strconv.Itoa(p) + ".>"
	return jetstream.StreamConfig{
		Name: Output(p), Subjects: []string{subjects},
		Storage: jetstream.FileStorage, Replicas: c.replicas(), MaxAge: maxAge + Margin, Duplicates: time.Second,
		AllowMsgTTL: true, AllowDirect: true,
		RePublish: &jetstream.RePublish{Source: subjects, Destination: "emitted." + strconv.Itoa(p) + ".>", HeadersOnly: true},
	}
}

func payloadsConfig(c Config, p int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Payloads(p), Subjects: []string{"payloads." + strconv.Itoa(p) + ".>", "kept." + strconv.Itoa(p) + ".>"},
		Storage: jetstream.FileStorage, Replicas: c.replicas(), MaxAge: maxAge + Margin, Duplicates: time.Second,
		AllowMsgTTL: true, AllowDirect: true,
	}
}

func dueConfig(p int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: DueConsumer, FilterSubject: DueFilter(p),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: 10 * time.Second, MaxDeliver: -1, MaxAckPending: 10_000,
	}
}

// sharedConfigs are the streams that are there once, in the order in which they are made.
func sharedConfigs(c Config) []jetstream.StreamConfig {
	versioned := bucketConfig(c, BucketEndpoints, 0)
	versioned.Metadata = schemaMetadata()
	return []jetstream.StreamConfig{
		eventsConfig(c), webhooksConfig(c), undeliveredConfig(c), deliveriesConfig(c), cursorsConfig(c), scalingConfig(c), statsConfig(c),
		agingConfig(c, BucketDestinations), agingConfig(c, BucketTokens), agingConfig(c, BucketPods), agingConfig(c, BucketWorkerPods),
		bucketConfig(c, BucketKeys, 0),
		bucketConfig(c, BucketWorkers, presence),
		bucketConfig(c, BucketInstances, presence),
		bucketConfig(c, BucketLeaders, leaderTTL),
		bucketConfig(c, BucketCounts, 0),
		bucketConfig(c, BucketPositions, 0),
		bucketConfig(c, BucketWorkerEndpoints, 0),
		bucketConfig(c, BucketTemplates, 0),
		bucketConfig(c, BucketVolumes, 0),
		bucketConfig(c, BucketIdempotency, idempotencyAge),
		bucketConfig(c, BucketMachines, presence),
		bucketConfig(c, BucketGPUs, 0),
		bucketConfig(c, BucketSessions, SessionAge),
		bucketConfig(c, BucketActions, ActionAge),
		versioned, // last: it says that all else is there
	}
}

// bucketConfig is a bucket as nats.go makes it, whose values live for the ttl; 0 means that
// they stay.
func bucketConfig(c Config, bucket string, ttl time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Bucket(bucket), Subjects: []string{"$KV." + bucket + ".>"}, MaxAge: ttl,
		Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage, Replicas: c.replicas(), MaxMsgsPerSubject: 1,
		Duplicates: min(cmp.Or(ttl, 2*time.Minute), 2*time.Minute), AllowDirect: true, AllowRollup: true, DenyDelete: true,
	}
}

// eventsConfig has no bound on messages: the recorder trims the log, and never what
// it still has to read (docs/adr/0057).
func eventsConfig(c Config) jetstream.StreamConfig {
	age := cmp.Or(c.EventsAge, eventsAge)
	return jetstream.StreamConfig{
		Name: Events, Subjects: []string{"events.>"},
		Storage: jetstream.FileStorage, Replicas: c.replicas(), MaxAge: age, Duplicates: time.Second, AllowDirect: true,
	}
}

// agingConfig is a bucket for values with a TTL each. It has no markers for what expired
// (docs/design/jetstream.md#f5).
func agingConfig(c Config, bucket string) jetstream.StreamConfig {
	s := bucketConfig(c, bucket, 0)
	s.AllowMsgTTL = true
	return s
}

// cursorsConfig is agingConfig with a shorter window of message ids, and without DenyDelete.
func cursorsConfig(c Config) jetstream.StreamConfig {
	s := agingConfig(c, BucketCursors)
	s.Duplicates, s.DenyDelete = time.Second, false
	return s
}
