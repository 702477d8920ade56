package logs

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/streams"
)

// wireLine is a Line in a message, whose subject has the worker.
type wireLine struct {
	Time   int64  `json:"t"` // Unix, in nanoseconds
	Stream string `json:"s"`
	Job    job.ID `json:"j,omitempty"`
	Level  string `json:"l,omitempty"`
	Text   string `json:"x"`
	Cut    bool   `json:"c,omitempty"`
}

// batch is a message of lines, whose data is {"lines":[…]}.
type batch struct {
	id    string // under which it is stored once
	data  []byte
	lines int
}

// maxBatch bounds the data of a message: half of what NATS takes by default.
const maxBatch = 512 << 10

// messageData is the data of a message as it is read.
type messageData struct {
	Lines []wireLine `json:"lines"`
	// Printed is, in a message with a System line, the time of the line that the worker
	// printed last, Unix nanoseconds; 0 for none.
	Printed int64 `json:"printed,omitempty"`
}

const batchStart, batchEnd = `{"lines":[`, `]}`

// add appends the line and reports whether there was room.
func (b *batch) add(l Line) bool {
	text, err := json.Marshal(wireLine{Time: l.Time.UnixNano(), Stream: l.Stream, Job: l.Job, Level: l.Level, Text: l.Text, Cut: l.Cut})
	if err != nil {
		return true // strings are always JSON
	}
	switch {
	case b.lines == 0:
		b.data = append(b.data[:0], batchStart...)
	case len(b.data)+len(text)+len(batchEnd)+1 > maxBatch:
		return false
	default:
		b.data = append(b.data, ',')
	}
	b.data = append(b.data, text...)
	b.lines++
	return true
}

// linesOf reads a message of LOGS_<p>, as BatchGet returns it: nil of a later version, or if it
// is damaged.
func linesOf(m *nats.Msg) []Line {
	worker, err := streams.WorkerOfLog(bus.SubjectOf(m))
	var wire messageData
	if err != nil || json.Unmarshal(m.Data, &wire) != nil {
		return nil
	}
	lines := make([]Line, len(wire.Lines))
	for i, l := range wire.Lines {
		lines[i] = Line{Time: time.Unix(0, l.Time).UTC(), Worker: worker, Job: l.Job, Stream: l.Stream, Level: l.Level, Text: l.Text, Cut: l.Cut}
	}
	return lines
}
