package events

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"flightline/shared/job"
	"flightline/shared/stats"
	"flightline/streams"
)

// blockKey names a block of STATS.
type blockKey struct {
	endpoint string
	kind     streams.StatsKind
	name     string
	start    int64 // Unix seconds
}

func (k blockKey) subject() string { return streams.StatsSubject(k.endpoint, k.kind, k.name, k.start) }

// parseKey is the key of the block on a subject.
func parseKey(subject string) (k blockKey, err error) {
	k.endpoint, k.kind, k.name, k.start, err = streams.ParseStats(subject)
	return k, err
}

// keyAt is the block of the kind that has an instant.
func keyAt(endpoint string, kind streams.StatsKind, name string, at time.Time) blockKey {
	length := int64(kind.Length() / time.Second)
	return blockKey{endpoint, kind, name, at.Unix() / length * length}
}

// block is the JSON of one message of STATS: a fold of the log's entries up to Seq.
type block struct {
	// Seq is the last entry of the log that changed the block. Those before it are in
	// the block as far as they belong there.
	Seq uint64 `json:"seq"`
	// Points are by their start, in minutes or hours since that of the block.
	Points map[int]*stats.Point `json:"points,omitempty"`
	// Sampled is when Points had a sample last, in Unix seconds.
	Sampled  int64          `json:"sampled,omitempty"`
	Failures stats.Failures `json:"failures,omitempty"`
	// Entries are sequences of the log in ascending order, as differences.
	Entries entryList `json:"entries,omitzero"`
	// Until is when the last result can no longer be read that Entries lead to, in Unix
	// milliseconds.
	Until int64 `json:"until,omitempty"`
}

// point is the point of a block of points that has an instant.
func (b *block) point(k blockKey, at time.Time) *stats.Point {
	if b.Points == nil {
		b.Points = map[int]*stats.Point{}
	}
	i := int((at.Unix() - k.start) / int64(stepOf(k.kind)/time.Second))
	if b.Points[i] == nil {
		b.Points[i] = &stats.Point{}
	}
	return b.Points[i]
}

// stepOf is the time of one point in a block of the kind.
func stepOf(kind streams.StatsKind) time.Duration {
	if kind == streams.StatsHours {
		return time.Hour
	}
	return time.Minute
}

// expires is when a block may go.
func (b *block) expires(k blockKey) time.Time {
	end := time.Unix(k.start, 0).Add(k.kind.Length())
	switch k.kind {
	case streams.StatsHours:
		return end.Add(streams.StatsByHourAge)
	case streams.StatsWorker, streams.StatsFingerprint:
		return job.Later(end, time.UnixMilli(b.Until).Add(time.Hour))
	case streams.StatsMinutes, streams.StatsFailures:
	}
	return end.Add(streams.StatsByMinuteAge)
}

// count adds what an event counts for to the point of the time at which it happened.
func count(p *stats.Point, e Event) {
	totals := Totals{}.with(e)
	p.Completed += totals.Completed
	p.Failed += totals.Failed
	p.TimedOut += totals.TimedOut
	p.Cancelled += totals.Cancelled
	p.Retried += totals.Retried
	switch {
	case e.Kind == Queued && e.Attempt == 1:
		p.Submitted++
	case e.Kind == Started && e.Run == 1:
		p.Delay.Add(e.At.Sub(e.Queued))
	case e.Status.Terminal():
		p.Lost += int64(e.Lost)
		if !e.Started.IsZero() {
			p.Execution.Add(e.Finished.Sub(e.Started))
		}
	}
}

// entryList is sequences in ascending order, each as the difference to the one before.
type entryList struct {
	packed []byte
	last   uint64
}

// add appends a sequence that is greater than all in the list. The last sequence again
// changes nothing.
func (l *entryList) add(seq uint64) {
	if seq > l.last {
		l.packed, l.last = binary.AppendUvarint(l.packed, seq-l.last), seq
	}
}

// list returns the sequences in ascending order.
func (l entryList) list() (all []uint64) {
	var seq uint64
	for rest := l.packed; len(rest) > 0; {
		more, n := binary.Uvarint(rest)
		if n <= 0 {
			return all
		}
		seq, rest = seq+more, rest[n:]
		all = append(all, seq)
	}
	return all
}

// IsZero reports whether the list is empty.
func (l entryList) IsZero() bool { return len(l.packed) == 0 }

// MarshalJSON writes the differences as varints in base64.
func (l entryList) MarshalJSON() ([]byte, error) { return json.Marshal(l.packed) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *entryList) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &l.packed); err != nil {
		return err
	}
	if all := l.list(); len(all) > 0 {
		l.last = all[len(all)-1]
	}
	return nil
}

func parseBlock(data []byte) (*block, error) {
	b := &block{}
	if err := json.Unmarshal(data, b); err != nil {
		return nil, err
	}
	for i, p := range b.Points {
		if p == nil || i < 0 {
			return nil, fmt.Errorf("point %d is invalid", i)
		}
	}
	return b, nil
}

// decodedBlock is parseBlock that warns of a block that cannot be decoded and returns an
// empty one: it must not keep others from being read and written.
func (l *Log) decodedBlock(ctx context.Context, subject string, seq uint64, data []byte) *block {
	b, err := parseBlock(data)
	if err != nil {
		l.log.WarnContext(ctx, "block of statistics cannot be decoded and is taken for an empty one", "stream", streams.Stats, "sequence", seq, "subject", subject, "err", err)
		return &block{}
	}
	return b
}
