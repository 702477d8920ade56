package events

import (
	"bytes"
	"encoding/json"
	"strconv"

	"flightline/shared/job"
)

// Entries are written and read once for each job at least. So this file does what
// encoding/json would do with the tags of wire.go, without reflection. What it does not
// know, it leaves to encoding/json. A new field must be added here too.

// append writes an attempt.
func (a *wireAttempt) append(b []byte) []byte {
	b = appendText(append(b, `{"job":`...), string(a.Job))
	b = appendNumber(b, `,"attempt":`, int64(a.Attempt))
	b = appendMember(b, `,"mode":`, string(a.Mode))
	b = appendMember(b, `,"class":`, string(a.Class))
	b = strconv.AppendInt(append(b, `,"submitted":`...), a.Submitted, 10)
	b = appendNumber(b, `,"queued":`, a.Queued)
	b = strconv.AppendInt(append(b, `,"expires":`...), a.Expires, 10)
	b = append(b, `,"events":[`...)
	for i := range a.Events {
		if i > 0 {
			b = append(b, ',')
		}
		b = a.Events[i].append(b)
	}
	return append(b, `]}`...)
}

func (e *wireEvent) append(b []byte) []byte {
	b = appendText(append(b, `{"kind":`...), string(e.Kind))
	b = appendNumber(b, `,"at":`, e.At)
	b = appendNumber(b, `,"run":`, int64(e.Run))
	b = appendMember(b, `,"worker":`, e.Worker)
	b = appendNumber(b, `,"retries":`, int64(e.Retries))
	b = appendNumber(b, `,"lost":`, int64(e.Lost))
	if e.Started != nil {
		b = strconv.AppendInt(append(b, `,"started":`...), *e.Started, 10)
	}
	if e.Retained != nil {
		b = strconv.AppendInt(append(b, `,"retained":`...), *e.Retained, 10)
	}
	b = appendMember(b, `,"error":`, e.Error)
	b = appendMember(b, `,"cause":`, e.Cause)
	return append(b, '}')
}

// appendNumber writes a member unless it is zero, appendMember unless it is empty.
func appendNumber(b []byte, key string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, key...), n, 10)
}

func appendMember(b []byte, key, text string) []byte {
	if text == "" {
		return b
	}
	return appendText(append(b, key...), text)
}

func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; !plain(c) || c == '<' || c == '>' || c == '&' {
			escaped, _ := json.Marshal(text) // a string has no error
			return append(b, escaped...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// plain reports whether JSON may have a character in a string as it is.
func plain(c byte) bool { return c >= ' ' && c <= '~' && c != '"' && c != '\\' }

// readEntry reads what entriesOf writes. It reports false of everything else, such as
// texts with escapes; then the entry must not be used.
func readEntry(body []byte) (w wireEntry, ok bool) {
	r := jsonReader{rest: body}
	r.object(func(key []byte) {
		switch string(key) {
		case "partition":
			w.Partition = int(r.number())
		case "after":
			n := r.number()
			w.After, r.failed = uint64(n), r.failed || n < 0 //nolint:gosec // one that is negative is refused
		case "attempts":
			w.Attempts = make([]wireAttempt, 0, bytes.Count(r.rest, []byte(`{"job":`)))
			r.array(func() { w.Attempts = append(w.Attempts, r.attempt()) })
		default:
			r.failed = true
		}
	})
	return w, !r.failed && len(r.rest) == 0
}

// jsonReader cuts JSON without spaces off the beginning of rest. failed: it is another
// text.
type jsonReader struct {
	rest   []byte
	failed bool
}

func (r *jsonReader) attempt() (a wireAttempt) {
	r.object(func(key []byte) {
		switch string(key) {
		case "job":
			a.Job = job.ID(r.text())
		case "attempt":
			a.Attempt = int(r.number())
		case "mode":
			a.Mode = job.Mode(r.text())
		case "class":
			a.Class = job.Class(r.text())
		case "submitted":
			a.Submitted = r.number()
		case "queued":
			a.Queued = r.number()
		case "expires":
			a.Expires = r.number()
		case "events":
			const usual = 3
			a.Events = make([]wireEvent, 0, usual)
			r.array(func() { a.Events = append(a.Events, r.event()) })
		default:
			r.failed = true
		}
	})
	return a
}

func (r *jsonReader) event() (e wireEvent) {
	r.object(func(key []byte) {
		switch string(key) {
		case "kind":
			e.Kind = r.kind()
		case "at":
			e.At = r.number()
		case "run":
			e.Run = int(r.number())
		case "worker":
			e.Worker = string(r.text())
		case "retries":
			e.Retries = int(r.number())
		case "lost":
			e.Lost = int(r.number())
		case "started":
			n := r.number()
			e.Started = &n
		case "retained":
			n := r.number()
			e.Retained = &n
		case "error":
			e.Error = string(r.text())
		case "cause":
			e.Cause = string(r.text())
		default:
			r.failed = true
		}
	})
	return e
}

// kind reads a kind, in most cases without a copy.
func (r *jsonReader) kind() Kind {
	text := r.text()
	switch Kind(text) {
	case Queued:
		return Queued
	case Started:
		return Started
	case Completed:
		return Completed
	case Failed, Cancelled, TimedOut:
	}
	return Kind(text)
}

// object calls member for each key of an object; that reads the value.
func (r *jsonReader) object(member func(key []byte)) {
	r.skip('{')
	for !r.failed {
		key := r.text()
		r.skip(':')
		if r.failed {
			return
		}
		if member(key); r.ends('}') {
			return
		}
	}
}

// array calls element for each element of an array that is not empty; that reads it.
func (r *jsonReader) array(element func()) {
	r.skip('[')
	for !r.failed {
		if element(); r.ends(']') {
			return
		}
	}
}

// ends cuts the end of an object or array off, or the comma before what follows.
func (r *jsonReader) ends(end byte) bool {
	if !r.failed && len(r.rest) > 0 && r.rest[0] == end {
		r.rest = r.rest[1:]
		return true
	}
	r.skip(',')
	return false
}

func (r *jsonReader) skip(c byte) {
	if r.failed || len(r.rest) == 0 || r.rest[0] != c {
		r.failed = true
		return
	}
	r.rest = r.rest[1:]
}

// text cuts a string without escapes off. The caller must not keep it.
func (r *jsonReader) text() []byte {
	if r.skip('"'); r.failed {
		return nil
	}
	for end, c := range r.rest {
		if c == '"' {
			text := r.rest[:end]
			r.rest = r.rest[end+1:]
			return text
		}
		if !plain(c) {
			break
		}
	}
	r.failed = true
	return nil
}

// number cuts an integer off.
func (r *jsonReader) number() int64 {
	end := 0
	for end < len(r.rest) && (r.rest[end] >= '0' && r.rest[end] <= '9' || r.rest[end] == '-') {
		end++
	}
	n, err := strconv.ParseInt(string(r.rest[:end]), 10, 64)
	r.rest, r.failed = r.rest[end:], r.failed || err != nil
	return n
}
