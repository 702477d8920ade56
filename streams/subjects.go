package streams

import (
	"fmt"
	"strconv"
	"strings"

	"flightline/shared/job"
)

// Jobs is the name of the endpoint's work queue.
func Jobs(endpoint string) string { return "JOBS_" + endpoint }

// JobSubject is where the queue message of a job waits.
func JobSubject(endpoint string, c job.Class, id job.ID) string {
	return "jobs." + endpoint + "." + string(c) + "." + string(id)
}

// EndpointOfQueue returns the endpoint whose work queue a stream is; ok is false
// for any other stream.
func EndpointOfQueue(stream string) (endpoint string, ok bool) {
	return strings.CutPrefix(stream, Jobs(""))
}

// KeySubject holds the value of a key of a bucket.
func KeySubject(bucket, key string) string { return "$KV." + bucket + "." + key }

// AnyClass matches the queue message of a job of whatever class.
func AnyClass(endpoint string, id job.ID) string { return "jobs." + endpoint + ".*." + string(id) }

// ClassFilter matches all queue messages of a class; its consumer is named
// Consumer(c).
func ClassFilter(endpoint string, c job.Class) string {
	return "jobs." + endpoint + "." + string(c) + ".*"
}

// Consumer names the durable pull consumer of a class in the endpoint's queue.
func Consumer(c job.Class) string {
	if c == job.LowPriority {
		return "low"
	}
	return "normal"
}

// Records is the name of the stream of a partition's records.
func Records(p int) string { return "KV_records_" + strconv.Itoa(p) }

func recordsPrefix(p int) string { return "$KV.records_" + strconv.Itoa(p) + "." }

// RecordSubject is the record of one attempt.
func RecordSubject(p int, endpoint string, id job.ID, attempt int) string {
	return recordsPrefix(p) + "r." + endpoint + "." + string(id) + "." + strconv.Itoa(attempt)
}

// AnyAttempt matches the records of all attempts of a job; of AnyEndpoint those of whatever
// endpoint.
func AnyAttempt(p int, endpoint string, id job.ID) string {
	return recordsPrefix(p) + "r." + endpoint + "." + string(id) + ".*"
}

// DueSubject is the timer key that the schedule of a record fires on.
func DueSubject(p int, endpoint string, id job.ID, attempt int) string {
	return recordsPrefix(p) + "due." + endpoint + "." + string(id) + "." + strconv.Itoa(attempt)
}

// DueFilter matches all timers of a partition; DueConsumer is the durable
// consumer that the api instances share.
func DueFilter(p int) string { return recordsPrefix(p) + "due.>" }

// DueConsumer names that consumer.
const DueConsumer = "due"

// ParseDue takes a DueSubject apart.
func ParseDue(subject string) (endpoint string, id job.ID, attempt int, err error) {
	return parseAttempt(subject, "due", "timer key")
}

// parseAttempt takes a DueSubject or a RecordSubject apart.
func parseAttempt(subject, kind, what string) (endpoint string, id job.ID, attempt int, err error) {
	t := strings.Split(subject, ".")
	if len(t) != 6 || t[2] != kind {
		return "", "", 0, fmt.Errorf("streams: %q is no %s", subject, what)
	}
	if attempt, err = strconv.Atoi(t[5]); err != nil {
		return "", "", 0, fmt.Errorf("streams: %q: attempt: %w", subject, err)
	}
	return t[3], job.ID(t[4]), attempt, nil
}

// Moved is where the headers of each write of a job's records are repeated.
func Moved(endpoint string, id job.ID) string { return "moved." + endpoint + "." + string(id) + ".*" }

// MovedFirst is Moved for the first attempt alone.
func MovedFirst(endpoint string, id job.ID) string {
	return "moved." + endpoint + "." + string(id) + ".1"
}

// Nudge is the subject on core NATS that makes the holder of a job read its record.
func Nudge(endpoint string, id job.ID) string { return "nudge." + endpoint + "." + string(id) }

// Nudges matches the nudges of all jobs of an endpoint.
func Nudges(endpoint string) string { return "nudge." + endpoint + ".*" }

// AnyNudge matches the nudges of all jobs.
const AnyNudge = "nudge.>"

// HolderAnswer is where the holder of a job says, over core NATS, that it lives,
// to whom a Nudge asked for that. It is no reply subject: those are the asker's
// choice, and not every role may publish everywhere.
func HolderAnswer(endpoint string, id job.ID) string { return "holder." + endpoint + "." + string(id) }

// JobOf returns the job that a JobSubject or a Nudge names: their last token.
func JobOf(subject string) job.ID {
	return job.ID(subject[strings.LastIndexByte(subject, '.')+1:])
}

// EndpointOf returns the endpoint that a JobSubject or a Nudge names: their
// second token.
func EndpointOf(subject string) string {
	_, rest, _ := strings.Cut(subject, ".")
	id, _, _ := strings.Cut(rest, ".")
	return id
}

// Output is the name of the stream of a partition's output chunks.
func Output(p int) string { return "OUTPUT_" + strconv.Itoa(p) }

// OutputSubject holds the chunks of one run.
func OutputSubject(p int, endpoint string, id job.ID, attempt, run int) string {
	return fmt.Sprintf("output.%d.%s.%s.%d.%d", p, endpoint, id, attempt, run)
}

// Payloads is the name of the stream of a partition's large inputs and outputs.
func Payloads(p int) string { return "PAYLOADS_" + strconv.Itoa(p) }

// Side says which payload of a run a subject holds.
type Side string

// In is the job's input, Out the run's output.
const (
	In  Side = "in"
	Out Side = "out"
)

// PayloadSubject holds the parts of one payload, in order. The token keeps two
// writers of the same run apart.
func PayloadSubject(p int, endpoint string, id job.ID, attempt, run int, side Side, token string) string {
	return fmt.Sprintf("payloads.%d.%s.%s.%d.%d.%s.%s", p, endpoint, id, attempt, run, side, token)
}

// PayloadPartition returns the partition of a PayloadSubject or a KeptSubject.
func PayloadPartition(subject string) (int, error) {
	t := strings.SplitN(subject, ".", 3)
	if len(t) != 3 {
		return 0, fmt.Errorf("streams: %q is no subject of a payload", subject)
	}
	p, err := strconv.Atoi(t[1])
	if err != nil {
		return 0, fmt.Errorf("streams: %q: partition: %w", subject, err)
	}
	return p, nil
}

// InputFilter matches the parts of an endpoint's inputs.
func InputFilter(p int, endpoint string) string {
	return fmt.Sprintf("payloads.%d.%s.*.*.*.%s.*", p, endpoint, In)
}

// AllJobs matches every queue message of an endpoint.
func AllJobs(endpoint string) string { return "jobs." + endpoint + ".>" }

// Emitted is where the headers of each chunk of a job are repeated, for stream
// readers that wait.
func Emitted(p int, endpoint string, id job.ID) string {
	return fmt.Sprintf("emitted.%d.%s.%s.>", p, endpoint, id)
}

// AnyOutput matches the chunks of all runs of a job.
func AnyOutput(p int, endpoint string, id job.ID) string {
	return fmt.Sprintf("output.%d.%s.%s.>", p, endpoint, id)
}

// AnyPayload matches the payloads of all attempts of a job.
func AnyPayload(p int, endpoint string, id job.ID) string {
	return fmt.Sprintf("payloads.%d.%s.%s.>", p, endpoint, id)
}

// AnyInput matches the inputs among them.
func AnyInput(p int, endpoint string, id job.ID) string {
	return fmt.Sprintf("payloads.%d.%s.%s.*.*.%s.*", p, endpoint, id, In)
}

// RecordFilter matches all records of a partition, without their timers.
func RecordFilter(p int) string { return recordsPrefix(p) + "r.>" }

// ParseRecord takes a RecordSubject apart.
func ParseRecord(subject string) (endpoint string, id job.ID, attempt int, err error) {
	return parseAttempt(subject, "r", "record")
}

// Events is the name of the stream that logs what happened to jobs.
const Events = "EVENTS"

// EventKinds are the kinds of events, in the order of a job's life: those of events.Kinds,
// which is above this package.
func EventKinds() []string {
	return []string{"queued", "started", "completed", "failed", "cancelled", "timed_out"}
}

// noKind stands in the subject of a log entry for a kind of which it has no event.
const noKind = "-"

// EntrySubject is that of an entry of the log, which has events of one endpoint
// (docs/adr/0057): events.<endpoint>, and a token for each of EventKinds, which is
// the kind if has reports that the entry has such an event, else "-".
func EntrySubject(endpoint string, has func(kind string) bool) string {
	tokens := []string{"events", endpoint}
	for _, kind := range EventKinds() {
		if !has(kind) {
			kind = noKind
		}
		tokens = append(tokens, kind)
	}
	return strings.Join(tokens, ".")
}

// ParseEntry returns the endpoint of an EntrySubject.
func ParseEntry(subject string) (endpoint string, err error) {
	t := strings.Split(subject, ".")
	if len(t) != 2+len(EventKinds()) || t[0] != "events" {
		return "", fmt.Errorf("streams: %q is no entry of the log", subject)
	}
	return t[1], nil
}

// EntryFilters match the entries of an endpoint that have events of a kind; a kind
// of "" stands for any. The second filter matches the events that a version before
// docs/adr/0057 wrote, each in a message of its own; without a kind one filter
// matches both.
func EntryFilters(endpoint, kind string) []string {
	if kind == "" {
		return []string{"events." + endpoint + ".>"}
	}
	tokens := []string{"events", endpoint}
	for _, k := range EventKinds() {
		if k != kind {
			k = "*"
		}
		tokens = append(tokens, k)
	}
	return []string{strings.Join(tokens, "."), "events." + endpoint + "." + kind + ".*.*.*"}
}

// EventSubject is where a version before docs/adr/0057 wrote one event. run is 0 for
// what happens before the first pick-up.
func EventSubject(endpoint, kind string, id job.ID, attempt, run int) string {
	return fmt.Sprintf("events.%s.%s.%s.%d.%d", endpoint, kind, id, attempt, run)
}

// ParseEvent takes an EventSubject apart.
func ParseEvent(subject string) (endpoint, kind string, id job.ID, attempt, run int, err error) {
	t := strings.Split(subject, ".")
	if len(t) != 6 || t[0] != "events" {
		return "", "", "", 0, 0, fmt.Errorf("streams: %q is no event", subject)
	}
	if attempt, err = strconv.Atoi(t[4]); err == nil {
		run, err = strconv.Atoi(t[5])
	}
	if err != nil {
		return "", "", "", 0, 0, fmt.Errorf("streams: %q: %w", subject, err)
	}
	return t[1], t[2], job.ID(t[3]), attempt, run, nil
}

// CursorSubject holds how far the plain reader of a job's stream has come.
func CursorSubject(endpoint string, id job.ID) string {
	return "$KV." + BucketCursors + "." + endpoint + "." + string(id)
}

// DurablePrefix plus the name of a stream is the core subject on which a
// process asks for everything that was written to the stream so far to be
// fsynced. The process of a server answers whose name says that it leaves that to its
// clients (barrier.ServerName).
const DurablePrefix = "durable."
