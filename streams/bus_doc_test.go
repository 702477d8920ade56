package streams_test

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

var update = flag.Bool("update", false, "write the generated documents anew")

const busFile = "../docs/bus.md"

// Placeholders: numbers that become names in the document.
const (
	anEndpoint = "ENDPOINT"
	aPartition = 0
	anAttempt  = 1_000_001
	aRun       = 1_000_002
)

// Who writes and reads, and until when: no setting has that.
var roles = map[string]struct{ what, writes, reads, kept string }{
	"JOBS_<endpoint>":  {"the work queue of an endpoint; one message is one attempt that waits or runs", "submit, retry, a longer ttl", "workers, purge", "the attempt's end, the job's ttl"},
	"KV_records_<p>":   {"one record per attempt, from its first decision on; and its timers", "`queue.move` by compare-and-set; the server's schedule", "everyone", "the job's ttl and an hour"},
	"OUTPUT_<p>":       {"chunks that handlers emit", "the worker of the run", "stream readers", "the job's ttl and an hour"},
	"PAYLOADS_<p>":     {"inputs and outputs over 256 KB, in parts", "submit, workers, a longer ttl", "workers, readers", "the job's ttl and an hour"},
	"LOGS_<p>":         {"what workers print, redacted; a message has many lines of one worker", "autoscaler (of the workers that it starts), workers", "`/logs`", "3 days, 256 MiB in all partitions (settable)"},
	"EVENTS":           {"what happened to jobs, without inputs and outputs; a message has the events of many jobs of an endpoint", "recorder", "`/requests`, counts, subscribers", "7 days, 4 GiB (settable)"},
	"WEBHOOKS":         {"webhook tasks that a webhook is to hear of", "recorder", "webhook", "its delivery, 7 days"},
	"UNDELIVERED":      {"webhook tasks that were given up, or whose destination is paused", "webhook", "webhook, replay", "its replay, 7 days, 4 GiB (settable)"},
	"DELIVERIES":       {"each attempt to deliver a webhook task; the last one of a subject says how many there were; several that succeeded at once share a message", "webhook", "webhook, control", "7 days, 256 MiB (settable)"},
	"SCALING":          {"what the autoscaler decided about an endpoint's workers, and why", "autoscaler", "explain, scale", "7 days, 1000 per endpoint"},
	"STATS":            {"points in time with counts and percentiles, failures by cause, and where in the log the jobs of a worker or a cause are; one message is one block of time", "recorder", "stats, failures, overview, `/requests`", "7 days by minute, 90 days by hour"},
	"pods":             {"what drivers run, alive or gone", "control, autoscaler", "control, autoscaler", "a day after they ended; a worker's: 7 days after its last renewal"},
	"worker_endpoints": {"what workers may read of endpoints: no secret, nothing that they do not need", "control, autoscaler", "workers", "the endpoint is deleted"},
	"worker_pods":      {"what other workers run in, as they or gateways say; whether a driver's worker is to drain", "workers, gateway, control, autoscaler", "control, autoscaler, workers", "a day after they ended; 7 days after their last renewal"},
	"templates":        {"what pods and endpoints can be made from", "control", "control, autoscaler", "it is deleted"},
	"volumes":          {"network volumes", "control", "control, autoscaler", "it is deleted"},
	"machines":         {"what each machine that runs pods reports of its GPUs", "autoscaler", "control, autoscaler", "15 s after the last report"},
	"gpus":             {"which pods hold each GPU, and whether it is quarantined, by its UUID", "autoscaler, control, by compare-and-set", "control, autoscaler, api", "a GPU without holders keeps an empty value"},
	"destinations":     {"receivers that keep failing, or are paused", "webhook, control", "webhook, control", "they answer again, or are resumed; 7 days after the last failure unless paused, 1000 per endpoint"},
	"counts":           {"how many attempts ended how, per endpoint: the events, folded", "recorder", "health", "the endpoint is deleted"},
	"positions":        {"how far the recorder has come", "recorder", "recorder", "never"},
	"leaders":          {"which instance of a role is active", "the active instance", "its standbys", "12 s after the last renewal"},
	"idempotency":      {"`Idempotency-Key`s, with the job each one led to", "submit", "submit", "24 h"},
	"sessions":         {"sessions of the console, sealed with what only their cookies hold", "console", "console", "12 h"},
	"actions":          {"how far the console has come with each action on many jobs; and the ids of the jobs, until it is over", "console, by compare-and-set", "console", "24 h"},
	"cursors":          {"how far the plain reader of a job's stream has come", "`/stream`", "`/stream`", "the job's ttl and an hour"},
	"endpoints":        {"what exists under which id, with its settings", "control, autoscaler", "everyone, through a cache", "it is deleted"},
	"keys":             {"API keys by their hash, with their scopes", "control", "api, control, gateway, through a cache", "it is revoked"},
	"tokens":           {"the tokens of workers that speak HTTP, hashed, and which of them drain", "control, gateway, autoscaler", "control, api, gateway, autoscaler", "they are revoked; one of a fleet's worker: 7 days after its last renewal"},
	"workers":          {"workers that live, with what they run", "workers", "health", "15 s after the last heartbeat"},
	"instances":        {"processes that serve, with what they have seen", "api", "control, before it deletes an endpoint", "15 s after the last heartbeat"},
}

// The document is what a server has after Apply; -update rewrites it.
func TestGeneratedBus(t *testing.T) {
	b := env{start(t).Server, endpointOf(t, anEndpoint)}
	if err := streams.ApplyEndpoint(t.Context(), b.JS, streams.Config{}, b.e); err != nil {
		t.Fatal(err)
	}
	if err := b.JS.DeleteStream(t.Context(), streams.Jobs("ep")); err != nil {
		t.Fatal(err)
	}
	got := withNames(busDocument(t, b))
	testenv.Golden(t, *update, busFile, got)
}

// withNames gives the placeholders their names.
func withNames(text string) string {
	return strings.NewReplacer(
		anEndpoint, "<endpoint>", fmt.Sprint(anAttempt), "<attempt>", fmt.Sprint(aRun), "<run>",
		"records_0", "records_<p>", "OUTPUT_0", "OUTPUT_<p>", "LOGS_0", "LOGS_<p>", "PAYLOADS_0", "PAYLOADS_<p>",
		"output.0.", "output.<p>.", "payloads.0.", "payloads.<p>.", "emitted.0.", "emitted.<p>.", "logs.0.", "logs.<p>.", "logged.0.", "logged.<p>.",
	).Replace(text)
}

func busDocument(t *testing.T, b env) string {
	t.Helper()
	var doc strings.Builder
	doc.WriteString(`# The map of the bus

<!-- Generated from package streams by TestGeneratedBus, off a server; ` + "`task gen`" + ` rewrites it. -->

Every stream, bucket and subject of Flightline. Names are spelled in ` + "`streams/`" + ` and nowhere else. ` + "`<p>`" + ` is the endpoint's
partition, from 0, chosen when the endpoint is made; ` + "`<class>`" + ` is ` + "`n`" + ` or ` + "`l`" + ` (lowPriority). Why it is so: [ADR 0002](adr/0002-record-decides-ack-last.md),
[0004](adr/0004-ttl-by-message-age.md) and [0006](adr/0006-queue-per-endpoint.md).

`)
	all := allStreams(t, b.JS)
	writeOverview(t, &doc, all)
	for _, s := range all {
		if !isBucket(s) {
			writeStream(t, &doc, b.JS, s)
		}
	}
	writeBuckets(&doc, all)
	writeSubjects(&doc)
	return doc.String()
}

func allStreams(t *testing.T, js jetstream.JetStream) []*jetstream.StreamInfo {
	t.Helper()
	list := js.ListStreams(t.Context())
	var all []*jetstream.StreamInfo
	for info := range list.Info() {
		all = append(all, info)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	order := []string{"JOBS_", "KV_records", "OUTPUT", "PAYLOADS", "LOGS_", "KV_"}
	rank := func(s *jetstream.StreamInfo) int {
		return slices.IndexFunc(order, func(prefix string) bool { return strings.HasPrefix(s.Config.Name, prefix) })
	}
	slices.SortFunc(all, func(x, y *jetstream.StreamInfo) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.Config.Name, y.Config.Name))
	})
	return all
}

// isBucket reports whether the KV API made the stream.
func isBucket(s *jetstream.StreamInfo) bool {
	return strings.HasPrefix(s.Config.Name, "KV_") && s.Config.Name != streams.Records(aPartition)
}

// nameOf is how the document calls it.
func nameOf(s *jetstream.StreamInfo) string {
	if isBucket(s) {
		return strings.TrimPrefix(s.Config.Name, "KV_")
	}
	return withNames(s.Config.Name)
}

func writeOverview(t *testing.T, doc *strings.Builder, all []*jetstream.StreamInfo) {
	t.Helper()
	doc.WriteString("| stream or bucket | what | written by | read by | kept until |\n|---|---|---|---|---|\n")
	for _, s := range all {
		r, ok := roles[nameOf(s)]
		if !ok {
			t.Errorf("%s is in no row of roles: say who writes and reads it", nameOf(s))
		}
		fmt.Fprintf(doc, "| `%s` | %s | %s | %s | %s |\n", nameOf(s), r.what, r.writes, r.reads, r.kept)
	}
	if len(all) != len(roles) {
		t.Errorf("got %d streams and buckets, but roles has %d", len(all), len(roles))
	}
}

func writeStream(t *testing.T, doc *strings.Builder, js jetstream.JetStream, s *jetstream.StreamInfo) {
	t.Helper()
	c := s.Config
	fmt.Fprintf(doc, "\n## %s\n\n| setting | value |\n|---|---|\n", c.Name)
	row := func(name string, value any) { fmt.Fprintf(doc, "| %s | %v |\n", name, value) }
	row("subjects", "`"+strings.Join(c.Subjects, "`, `")+"`")
	row("retention, discard, storage", fmt.Sprintf("%v, %v, %v", c.Retention, c.Discard, c.Storage))
	row("max age", orNone(c.MaxAge))
	row("messages per subject", orAny(c.MaxMsgsPerSubject))
	row("messages, bytes", orAny(c.MaxMsgs)+", "+orAny(c.MaxBytes))
	row("ttl of each message", yes(c.AllowMsgTTL))
	row("delete markers", orNone(c.SubjectDeleteMarkerTTL))
	row("schedules", yes(c.AllowMsgSchedules))
	row("direct get", yes(c.AllowDirect))
	row("window of message ids", c.Duplicates)
	if r := c.RePublish; r != nil {
		row("repeated on core NATS", fmt.Sprintf("`%s` as `%s`, headers only: %s", r.Source, r.Destination, yes(r.HeadersOnly)))
	}
	writeConsumers(t, doc, js, c.Name)
}

func writeConsumers(t *testing.T, doc *strings.Builder, js jetstream.JetStream, name string) {
	t.Helper()
	list := stream(t, js, name).ListConsumers(t.Context())
	var all []*jetstream.ConsumerInfo
	for c := range list.Info() {
		all = append(all, c)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(x, y *jetstream.ConsumerInfo) int { return cmp.Compare(y.Name, x.Name) })
	doc.WriteString("\n| consumer | filter | ack wait | deliveries | out at once | open pulls |\n|---|---|---|---|---|---|\n")
	for _, info := range all {
		c := info.Config
		wait := fmt.Sprint(c.AckWait)
		if name == streams.Jobs(anEndpoint) {
			wait = "the endpoint's lease, " + wait + " unless set"
		}
		fmt.Fprintf(doc, "| `%s` | `%s` | %s | %s | %s | %d |\n", c.Durable, c.FilterSubject, wait,
			orAny(int64(c.MaxDeliver)), orAny(int64(c.MaxAckPending)), c.MaxWaiting)
	}
}

func writeBuckets(doc *strings.Builder, all []*jetstream.StreamInfo) {
	doc.WriteString("\n## Buckets\n\n| bucket | values vanish | history | storage |\n|---|---|---|---|\n")
	for _, s := range all {
		if isBucket(s) {
			fmt.Fprintf(doc, "| `%s` | %s | %d | %v |\n", nameOf(s), orNever(s.Config.MaxAge), s.Config.MaxMsgsPerSubject, s.Config.Storage)
		}
	}
}

func writeSubjects(doc *strings.Builder) {
	const id = job.ID("<job>")
	doc.WriteString("\n## Subjects\n\n| function | subject | what |\n|---|---|---|\n")
	for _, s := range []struct{ function, subject, what string }{
		{"JobSubject", streams.JobSubject(anEndpoint, "<class>", id), "the queue message of a job"},
		{"RecordSubject", streams.RecordSubject(aPartition, anEndpoint, id, anAttempt), "the record of an attempt"},
		{"DueSubject", streams.DueSubject(aPartition, anEndpoint, id, anAttempt), "where the record's schedule fires"},
		{"OutputSubject", streams.OutputSubject(aPartition, anEndpoint, id, anAttempt, aRun), "the chunks of a run"},
		{"PayloadSubject", streams.PayloadSubject(aPartition, anEndpoint, id, anAttempt, aRun, "<in or out>", "<token>"), "the parts of a payload; the token keeps two writers apart"},
		{"LogSubject", streams.LogSubject(aPartition, anEndpoint, "<worker>"), "lines that a worker printed"},
		{"WebhookSubject", streams.WebhookSubject(anEndpoint, id, anAttempt), "the webhook task of an attempt, to be delivered"},
		{"UndeliveredSubject", streams.UndeliveredSubject(anEndpoint, id, anAttempt), "a webhook task that nobody tries to deliver"},
		{"DeliverySubject", streams.DeliverySubject(anEndpoint, id, anAttempt), "the attempts to deliver it"},
		{"Moved", streams.Moved(anEndpoint, id), "core: the headers of each write of a record, for waiters; nothing is stored"},
		{"Nudge", streams.Nudge(anEndpoint, id), "core: has a holder look at its record, or asks whether it lives"},
		{"HolderAnswer", streams.HolderAnswer(anEndpoint, id), "core: a holder lives; or for how long JetStream has served the sender"},
		{"DurablePrefix", streams.DurablePrefix + "<stream>", "core: asks the process of a server that is alone to fsync the stream"},
	} {
		fmt.Fprintf(doc, "| `%s` | `%s` | %s |\n", s.function, s.subject, s.what)
	}
	doc.WriteString("\nReplicas are 1 on a single node and 3 in a cluster, for every stream and bucket. A queue message and a record have one form:\n" +
		"a header `Flightline-Job`, JSON, with everything but the payloads; the body is the payloads.\n")
}

func orNone(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return d.String()
}

func orNever(d time.Duration) string {
	if d == 0 {
		return "never"
	}
	return d.String() + " after their last write"
}

func orAny(n int64) string {
	if n <= 0 {
		return "any"
	}
	return fmt.Sprint(n)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
