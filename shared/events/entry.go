package events

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
)

// Entry is one message of the log: events of one endpoint that were appended
// together (docs/adr/0057). An event that a version before wrote is an entry of its
// own.
type Entry struct {
	// Seq is the entry's sequence in EVENTS, Written when it got there, by the
	// server's clock.
	Seq     uint64
	Written time.Time
	// Endpoint is the one of all its events.
	Endpoint string
	// Partition is that of the records which the events were made of; -1 in an
	// entry of a version before.
	Partition int
	// After is a place in that partition's records: the events of every write
	// that the recorder saw up to there are in the entries before this one.
	After uint64
	// Events are in the order of the log. There is at least one.
	Events []Event
}

// ClockSlack is how much earlier than it happened an event may have been written, by
// clocks that differ.
const ClockSlack = 2 * time.Second

// The sequence of an event is its entry's and its place in the entry. The last
// event of an entry has the greatest place that there is, so that a reader of it goes
// on with the next entry.
const (
	placeBits  = 12
	maxInEntry = 1 << placeBits // events
)

// placed is the sequence of event i of the n in an entry.
func placed(entry uint64, i, n int) uint64 {
	return entry<<placeBits | uint64(maxInEntry-n+i) //nolint:gosec // n is at most maxInEntry
}

// endOf is the sequence of the last event of an entry.
func endOf(entry uint64) uint64 { return placed(entry, 0, 1) }

// entryAfter is the first entry that may have events after a sequence.
func entryAfter(seq uint64) uint64 { return max(1, (seq+1)>>placeBits) }

// Cursor is a sequence as text, for ParseCursor: that of the entry, and the event's
// place in it unless it is the last one, as "41" or "41.4090". It is "0" of what is
// before all events.
func Cursor(seq uint64) string {
	text := strconv.FormatUint(seq>>placeBits, 10)
	if place := seq % maxInEntry; seq > endOf(0) && place != maxInEntry-1 {
		text += "." + strconv.FormatUint(place, 10)
	}
	return text
}

// ParseCursor reads what Cursor wrote. "0" is before all events.
func ParseCursor(text string) (uint64, error) {
	const maxEntry = 1<<(64-placeBits) - 1
	entry, place, cut := strings.Cut(text, ".")
	seq, err := strconv.ParseUint(entry, 10, 64)
	if err != nil || seq > maxEntry {
		return 0, fmt.Errorf("%q is not the cursor of an event", text)
	}
	if !cut {
		return endOf(seq), nil
	}
	n, err := strconv.ParseUint(place, 10, placeBits)
	if err != nil {
		return 0, fmt.Errorf("%q is not the cursor of an event", text)
	}
	return seq<<placeBits | n, nil
}

// Check returns an error if m, a message of EVENTS as bus.Client.BatchGet read it, is
// no entry.
func Check(m *nats.Msg) error {
	_, err := decode(m)
	return err
}

// decode reads an entry as a direct get brings it.
func decode(m *nats.Msg) (Entry, error) {
	seq := bus.Sequence(m)
	written, err := bus.StoredAt(m)
	if err != nil {
		return Entry{}, fmt.Errorf("read event %d: time: %w", seq, err)
	}
	return parse(bus.SubjectOf(m), m.Data, seq, written)
}

// FromMsg reads the events of a message that a consumer of EVENTS got.
func FromMsg(m jetstream.Msg) ([]Event, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	entry, err := parse(m.Subject(), m.Data(), meta.Sequence.Stream, meta.Timestamp)
	return entry.Events, err
}

func parse(subject string, body []byte, seq uint64, written time.Time) (Entry, error) {
	entry, err := parseEntry(subject, body)
	if err != nil {
		single, old := parseSingle(subject, body)
		if old != nil {
			return Entry{}, fmt.Errorf("read event %d: %w", seq, err)
		}
		entry = single
	}
	entry.Seq, entry.Written = seq, written
	for i := range entry.Events {
		entry.Events[i].Seq, entry.Events[i].Written = placed(seq, i, len(entry.Events)), written
	}
	return entry, nil
}
