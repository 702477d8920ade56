// Package chunks has what a job emits while it runs: its stream. A Window appends
// the chunks of a run while the run goes on, a Writer those of a run that several
// processes write for. A Follower reads them as they come and sees the end of the
// job after the last of them, and a Cursor is how far the readers have come that
// keep no count themselves.
//
// Each run has a subject of its own, so that what a lost worker still emits is
// never among the chunks of the run that took over (docs/adr/0047).
package chunks

import (
	"encoding/json"
	"errors"

	"flightline/shared/job"
)

// Chunk is one element of a job's stream.
type Chunk struct {
	// Seq is its place in the stream: pass it as after to read on from there. It
	// is never 0. The last of the chunks that were read together has the sequence
	// of their message, which grows, also from run to run; see cursorOf.
	Seq uint64
	// Data is the element as it was emitted, on one line.
	Data json.RawMessage
	// Attempt and Run name the run that emitted it.
	Attempt, Run int
}

// ErrTooLarge means that a chunk exceeds job.MaxChunk and cannot be split, since
// neither it nor its output is a string.
var ErrTooLarge = errors.New("chunks: " + job.ErrTextChunkTooLarge)
