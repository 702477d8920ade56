// Package logs keeps what workers print, on JetStream. A Recorder takes it from a
// pipe and writes it, in batches and redacted, to LOGS_<p>; a Watch reads it again.
//
// Nothing here makes a worker wait: what comes faster than MaxRate, or while the bus
// is away and the buffer is full, is dropped and counted, and a line says how many
// were. Delivery is at least once: a batch whose answer was lost is written
// again, and twice only after an outage of minutes.
package logs

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"flightline/shared/api"
	"flightline/shared/job"
)

// Line is a line that a worker printed.
type Line struct {
	// Time is when it was printed, or read where that is unknown, by the clock of the
	// worker's machine.
	Time time.Time
	// Worker is the id of the worker, of its pod if it has one.
	Worker string
	// Job is the job that the line names, "" if it names none.
	Job job.ID
	// Stream is Stdout, Stderr, Logger, Dropped or System.
	Stream string
	// Level is debug, info, warn or error, "" if the line has none.
	Level string
	// Text is the line without its end, valid UTF-8, MaxLine bytes at most. Secrets are
	// hidden. Cut says that there was more of it.
	Text string
	Cut  bool
}

// The values of Line.Stream.
const (
	Stdout = "stdout"
	Stderr = "stderr"
	// Logger is what a program gave to the Go SDK's logger.
	Logger = "log"
	// Dropped says how many lines are missing here.
	Dropped = "dropped"
	// System says what happened to the worker itself; it printed none of that.
	System = api.SystemStream
)

const (
	// MaxLine bounds the text of a line, in bytes.
	MaxLine = 16 << 10
	// overlap is how much more of a line is looked at, for a secret that MaxLine would
	// cut in two.
	overlap = 4 << 10
)

// textOf is a line as it is kept: in UTF-8, without secrets. raw may be cut at MaxLine and overlap, which cut reports.
func textOf(raw []byte, cut bool, conceal func(string) string) (text string, isCut bool) {
	text = conceal(strings.ToValidUTF8(string(raw), "\uFFFD"))
	end := min(len(text), MaxLine)
	if cut { // what is left of a secret that was cut, however short the others before it made text
		end = min(end, max(0, len(text)-overlap))
	}
	if end == len(text) {
		return text, cut
	}
	return strings.ToValidUTF8(text[:end], ""), true
}

// begin is as much of a line as textOf looks at; cut reports whether there is more.
func begin(line []byte) (raw []byte, cut bool) {
	return line[:min(len(line), MaxLine+overlap)], len(line) > MaxLine+overlap
}

// LastOverwrite is what a terminal would show of a line, as of a progress bar that was written
// over: what follows its last carriage return, those at its end left out. It is a part of line.
func LastOverwrite(line []byte) []byte {
	line = bytes.TrimRight(line, "\r")
	return line[bytes.LastIndexByte(line, '\r')+1:]
}

// tagged is the job and the level that a line names itself: as JSON, as RunPod's SDK
// and slog print it, or as slog prints text.
func tagged(text string) (id job.ID, level string) {
	if strings.HasPrefix(text, "{") {
		return taggedJSON(text)
	}
	if strings.Contains(text, "=") { // an expression costs far more
		id = jobAttribute(text)
		if strings.HasPrefix(text, "time=") {
			level = levelOf(attribute(text, "level="))
		}
	}
	if id != "" || level != "" {
		return id, level
	}
	return taggedByRunPod(text)
}

// jobAttribute is the job that text names as slog writes it, "" for none.
func jobAttribute(text string) job.ID {
	for _, name := range []string{"job=", "job_id=", "requestId=", "request_id="} {
		if id := job.ID(attribute(text, name)); id.Valid() {
			return id
		}
	}
	return ""
}

// attribute is the word behind a name that follows a space, or begins the text; "" for
// none.
func attribute(text, name string) string {
	for from := 0; ; {
		i := strings.Index(text[from:], name)
		if i < 0 {
			return ""
		}
		i += from
		from = i + len(name)
		if i == 0 || text[i-1] == ' ' {
			value, _, _ := strings.Cut(text[from:], " ")
			return value
		}
	}
}

// runPodLine is how RunPod's SDK prints where it is not deployed.
var runPodLine = regexp.MustCompile(`^(DEBUG|INFO|WARN|ERROR)\s*\| (?:([A-Za-z0-9_-]+)\s*\| )?`)

func taggedByRunPod(text string) (id job.ID, level string) {
	if text == "" || strings.IndexByte("DIWE", text[0]) < 0 {
		return "", ""
	}
	m := runPodLine.FindStringSubmatch(text)
	if m == nil {
		return "", ""
	}
	if job.ID(m[2]).Valid() {
		id = job.ID(m[2])
	}
	return id, levelOf(m[1])
}

// taggedJSON reads {"requestId": …, "level": …}, and the names that others use.
func taggedJSON(text string) (id job.ID, level string) {
	var fields map[string]any
	if json.Unmarshal([]byte(text), &fields) != nil {
		return "", ""
	}
	for _, name := range []string{"requestId", "request_id", "job_id", "jobId", "job"} {
		if s, ok := fields[name].(string); ok && job.ID(s).Valid() {
			id = job.ID(s)
			break
		}
	}
	for _, name := range []string{"level", "levelname", "severity"} {
		if s, ok := fields[name].(string); ok {
			return id, levelOf(s)
		}
	}
	return id, ""
}

// levelOf is the level of a name, "" for an unknown name.
func levelOf(name string) string {
	switch strings.ToLower(name) {
	case "debug", "trace":
		return "debug"
	case "info", "notice":
		return "info"
	case "warn", "warning":
		return "warn"
	case "error", "critical", "fatal":
		return "error"
	}
	return ""
}
