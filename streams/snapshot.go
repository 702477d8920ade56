package streams

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Part is a group of streams that a backup copies before it goes on to the
// next: what is in a later part may be newer, never older.
type Part int

// The parts, in the order in which a backup copies them. Each rule behind it
// reads: a process that writes to both writes to the later part first, or what is
// missing in the later one is made again from the earlier.
const (
	// PartSettings is what exists: endpoints, keys, pods, and all that has no part of its
	// own below. Idempotency keys are among them: a key whose job is missing
	// would promise a job that is not there, the reverse only repeats one.
	PartSettings Part = iota
	// PartPositions is how far the recorder has come: what is after a
	// position is in the copies that follow; what is before it is read again
	// and recognised.
	PartPositions
	// PartCounts has in each value, and in each block of STATS, the last event that it
	// includes.
	PartCounts
	// PartEvents is the log, and the webhooks it leads to.
	PartEvents
	// PartUndelivered is where a webhook goes before it leaves the queue, and their log. A
	// replay goes the other way: so what was written to these and to the queue since their
	// copies is read in this order once the payloads are copied.
	PartUndelivered
	// PartPayloads are inputs and outputs. An input is written before its job
	// is queued and removed soon after the job's end, so it is copied before the
	// queues; an output is written before the record that refers to it, so what
	// was written since is copied again after all else.
	PartPayloads
	// PartJobs are the queues: a job leaves its queue after its record is
	// written, so a job that is missing here has its record in the next part.
	PartJobs
	// PartRecords are the records, which decide.
	PartRecords
	// PartOutput are the chunks of streams, which go with their record, and what workers
	// print, which nothing refers to.
	PartOutput
)

// PartOf is the part of a stream of ours; ok is false for another's.
func PartOf(stream string) (part Part, ok bool) {
	switch {
	case stream == Bucket(BucketPositions):
		return PartPositions, true
	case stream == Bucket(BucketCounts), stream == Stats:
		return PartCounts, true
	case stream == Events, stream == Webhooks:
		return PartEvents, true
	case stream == Undelivered, stream == Deliveries:
		return PartUndelivered, true
	case strings.HasPrefix(stream, Jobs("")):
		return PartJobs, true
	case isPartition(stream, Records):
		return PartRecords, true
	case isPartition(stream, Payloads):
		return PartPayloads, true
	case isPartition(stream, Output), isPartition(stream, Logs):
		return PartOutput, true
	case slices.Contains(Shared(Config{}), stream):
		return PartSettings, true
	}
	return 0, false
}

// BackupOrder returns those of the streams that are ours, in the order in
// which they are to be copied.
func BackupOrder(names []string) []string {
	ours := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, ok := PartOf(name)
		return !ok
	})
	slices.SortFunc(ours, func(a, b string) int {
		x, _ := PartOf(a)
		y, _ := PartOf(b)
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
	})
	return ours
}

// partitionOf is the partition whose stream name names so; ok is false for any other
// stream.
func partitionOf(stream string, name func(int) string) (p int, ok bool) {
	number, found := strings.CutPrefix(stream, strings.TrimSuffix(name(0), "0"))
	p, err := strconv.Atoi(number)
	return p, found && err == nil && p >= 0 && name(p) == stream // not "007"
}

func isPartition(stream string, name func(int) string) bool {
	_, ok := partitionOf(stream, name)
	return ok
}
