package streams

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// LogsAge is what Config.LogsAge of 0 means.
const LogsAge = 3 * 24 * time.Hour

// LogsMaxBytes is what Config.LogsMaxBytes of 0 means.
const LogsMaxBytes int64 = 256 << 20

const (
	// logsMinBytes is the least that a partition's stream may take.
	logsMinBytes = 16 << 20
	// logsDuplicates is how long a batch of lines whose answer was lost may be sent
	// again without being there twice.
	logsDuplicates = 2 * time.Minute
)

// Logs is the name of the stream of what a partition's workers print
// (docs/adr/0063-worker-logs.md).
func Logs(p int) string { return "LOGS_" + strconv.Itoa(p) }

// LogSubject is where the lines of one worker are written, many in one message.
func LogSubject(p int, endpoint, worker string) string {
	return fmt.Sprintf("logs.%d.%s.%s", p, endpoint, worker)
}

// AnyLog matches the lines of all workers of an endpoint.
func AnyLog(p int, endpoint string) string { return LogSubject(p, endpoint, "*") }

// Logged is where the headers of each message of a worker, "*" for all, are repeated,
// for readers that wait.
func Logged(p int, endpoint, worker string) string {
	return fmt.Sprintf("logged.%d.%s.%s", p, endpoint, worker)
}

// WorkerOfLog is the worker in a LogSubject.
func WorkerOfLog(subject string) (string, error) {
	t := strings.Split(subject, ".")
	if len(t) != 4 || t[0] != "logs" {
		return "", fmt.Errorf("streams: %q is no subject of a worker's lines", subject)
	}
	return t[3], nil
}

// logsConfig bounds the stream by size and age: the oldest lines go first.
func logsConfig(c Config, p int) jetstream.StreamConfig {
	subjects := "logs." + strconv.Itoa(p) + ".>"
	return jetstream.StreamConfig{
		Name: Logs(p), Subjects: []string{subjects}, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Replicas: c.replicas(), Duplicates: logsDuplicates, AllowDirect: true,
		MaxAge: cmp.Or(c.LogsAge, LogsAge), MaxBytes: c.logsMaxBytes(),
		RePublish: &jetstream.RePublish{Source: subjects, Destination: "logged." + strconv.Itoa(p) + ".>", HeadersOnly: true},
	}
}

// logsMaxBytes is the share of one partition, -1 for no bound.
func (c Config) logsMaxBytes() int64 {
	total := cmp.Or(c.LogsMaxBytes, LogsMaxBytes)
	if total < 0 {
		return -1
	}
	return max(logsMinBytes, total/int64(c.PartitionCount()))
}
