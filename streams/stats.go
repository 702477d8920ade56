package streams

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Stats is the name of the stream of what the recorder folds from the log, in blocks
// of time: one message is one block (docs/adr/0059).
const Stats = "STATS"

const (
	// StatsByMinuteAge is how long a block of points by minute, or of failures, is kept
	// after its end.
	StatsByMinuteAge = 7 * 24 * time.Hour
	// StatsByHourAge is how long a block of points by hour is kept after its end.
	StatsByHourAge = 90 * 24 * time.Hour
	// statsAge bounds what was written without a ttl.
	statsAge = StatsByHourAge + 2*24*time.Hour
)

// StatsKind is what a block holds.
type StatsKind string

// The kinds of blocks.
const (
	StatsMinutes  StatsKind = "minutes"  // points by minute
	StatsHours    StatsKind = "hours"    // points by hour
	StatsFailures StatsKind = "failures" // failures by their fingerprint
	// StatsWorker has the entries of the log with ends of one worker's runs,
	// StatsFingerprint those with failures of one fingerprint.
	StatsWorker      StatsKind = "worker"
	StatsFingerprint StatsKind = "fingerprint"
)

// Length is the time that one block of the kind covers.
func (k StatsKind) Length() time.Duration {
	switch k {
	case StatsHours:
		return 24 * time.Hour
	case StatsFailures:
		return time.Hour
	case StatsMinutes, StatsWorker, StatsFingerprint:
	}
	return 10 * time.Minute
}

// AnyEndpoint in place of an endpoint makes a subject that matches those of all.
const AnyEndpoint = "*"

// StatsSubject holds the block of a kind that begins at start, in Unix seconds. name
// is the worker or the fingerprint; the other kinds have none.
func StatsSubject(endpoint string, kind StatsKind, name string, start int64) string {
	return statsOf(endpoint, kind, name) + strconv.FormatInt(start, 10)
}

// StatsBlocks matches the blocks of a kind and name.
func StatsBlocks(endpoint string, kind StatsKind, name string) string {
	return statsOf(endpoint, kind, name) + "*"
}

func statsOf(endpoint string, kind StatsKind, name string) string {
	prefix := "stats." + endpoint + "." + string(kind) + "."
	if name != "" {
		prefix += name + "."
	}
	return prefix
}

// AllStats matches all blocks of an endpoint.
func AllStats(endpoint string) string { return "stats." + endpoint + ".>" }

// ParseStats takes a StatsSubject apart.
func ParseStats(subject string) (endpoint string, kind StatsKind, name string, start int64, err error) {
	t := strings.Split(subject, ".")
	if len(t) < 4 || len(t) > 5 || t[0] != "stats" {
		return "", "", "", 0, fmt.Errorf("streams: %q is no block of %s", subject, Stats)
	}
	if start, err = strconv.ParseInt(t[len(t)-1], 10, 64); err != nil {
		return "", "", "", 0, fmt.Errorf("streams: %q: %w", subject, err)
	}
	return t[1], StatsKind(t[2]), strings.Join(t[3:len(t)-1], ""), start, nil
}

// statsConfig has a ttl for each message and no markers for what expired
// (docs/design/jetstream.md#f5).
func statsConfig(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Stats, Subjects: []string{"stats.>"}, MaxMsgsPerSubject: 1, MaxAge: statsAge,
		Storage: jetstream.FileStorage, Replicas: c.replicas(), Duplicates: time.Second, AllowMsgTTL: true, AllowDirect: true,
	}
}
