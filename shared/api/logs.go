package api

import (
	"time"

	"flightline/shared/job"
)

// SystemStream is the LogLine.Stream of lines that say what happened to the worker; it
// printed none of them.
const SystemStream = "system"

// LogLine is a line that a worker printed, the data of an event of /logs.
type LogLine struct {
	Time     time.Time `json:"time"`
	WorkerID string    `json:"workerId"`
	// JobID is the job that the line names, "" for none.
	JobID job.ID `json:"jobId,omitempty"`
	// Stream is stdout, stderr, log (of the Go SDK's logger), dropped (how many lines
	// are missing here) or SystemStream.
	Stream string `json:"stream"`
	// Level is debug, info, warn or error, "" if the line has none.
	Level string `json:"level,omitempty"`
	Text  string `json:"text"`
	// Truncated says that the line was longer.
	Truncated bool `json:"truncated,omitempty"`
}
