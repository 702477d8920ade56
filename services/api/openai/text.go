package openai

import (
	"bytes"
	"encoding/json"
	"slices"
)

// eventText is the text of an event stream. Strings of the worker are written
// as they are, one after the other: they are events already. It cuts them
// anywhere, so the begun event behind the last whole one is kept back until its
// end comes: if the job fails before that, no client must take half of it for an
// event. Other values become events.
type eventText struct {
	bytes.Buffer
	heldBack   []byte // an event that has not ended
	hasOutput  bool   // the worker has put something out
	outputSent bool   // some of that was written, or is in the buffer
	raw        bool   // some output was a string, written as it is
	framed     bool   // some output was another value, made an event
	written    bool   // something was flushed, and last is its end
	last       [4]byte
}

// maxHeldBack bounds what is kept back; a longer event is written as it comes.
const maxHeldBack = 256 << 10

// The pieces of an event stream (WHATWG HTML, "Server-sent events").
const (
	eventPrefix = "data: "
	eventEnd    = "\n\n"
	eventPing   = ": ping" + eventEnd
	eventDone   = "data: [DONE]" + eventEnd // how OpenAI ends a stream
)

// discardWritten empties the buffer, which was written, and keeps its last bytes.
func (t *eventText) discardWritten() {
	t.written = t.written || t.Len() > 0
	copy(t.last[:], t.lastBytes())
	if t.Cap() > keptBuffer {
		t.Buffer = bytes.Buffer{}
	}
	t.Reset()
}

// lastBytes are the last bytes of the stream, written or in the buffer: enough to see
// whether it ends with the end of an event.
func (t *eventText) lastBytes() []byte {
	all := append(t.last[:len(t.last):len(t.last)], t.Bytes()[max(0, t.Len()-len(t.last)):]...)
	return all[len(all)-len(t.last):]
}

// betweenEvents reports whether no event is half written.
func (t *eventText) betweenEvents() bool {
	if !t.written && t.Len() == 0 {
		return true
	}
	tail := t.lastBytes()
	return bytes.HasSuffix(tail, []byte(eventEnd)) || bytes.HasSuffix(tail, []byte("\r\n\r\n"))
}

// add adds an output of the worker.
func (t *eventText) add(output json.RawMessage) {
	output = bytes.TrimSpace(output)
	if text, ok := stringOf(output); ok {
		if text != "" {
			t.addText(text)
			t.hasOutput, t.raw = true, true
		}
		return
	}
	if list, ok := elementsOf(output); ok {
		for _, value := range list {
			t.add(value)
		}
		return
	}
	if len(output) > 0 && string(output) != "null" {
		t.addEvent(output)
		t.framed = true
	}
}

// addText writes the whole events of it; the rest too, if that begins none.
func (t *eventText) addText(text string) {
	kept := t.betweenEvents()
	all := slices.Concat(t.heldBack, []byte(text))
	whole := len(all)
	if kept {
		whole = max(endOf(all, eventEnd), endOf(all, "\r\n\r\n"))
		if !beginsEvent(all[whole:]) || len(all)-whole > maxHeldBack {
			whole = len(all)
		}
	}
	_, _ = t.Write(all[:whole])
	t.outputSent = t.outputSent || whole > 0
	t.heldBack = bytes.Clone(all[whole:])
}

// endOf is the index behind the last end in text, 0 without one.
func endOf(text []byte, end string) int {
	if i := bytes.LastIndex(text, []byte(end)); i >= 0 {
		return i + len(end)
	}
	return 0
}

// beginsEvent reports whether text may be the beginning of an event; an empty text may.
func beginsEvent(text []byte) bool {
	for _, field := range []string{"data:", "event:", "id:", "retry:", ":"} {
		n := min(len(text), len(field))
		if string(text[:n]) == field[:n] {
			return true
		}
	}
	return false
}

// addFailure writes the event that says how the stream failed, in place of the one
// that was begun, unless that lacks nothing but its end.
func (t *eventText) addFailure(value []byte) {
	if data, ok := bytes.CutPrefix(t.heldBack, []byte("data:")); !ok || !json.Valid(data) {
		t.heldBack = nil
	}
	t.addEvent(value)
}

// addEvent writes a value as an event.
func (t *eventText) addEvent(value []byte) {
	t.writeHeldBack()
	if !t.betweenEvents() {
		_, _ = t.WriteString(eventEnd)
	}
	_, _ = t.WriteString(eventPrefix)
	_ = json.Compact(&t.Buffer, value) // it is JSON; an event's data ends with the line
	_, _ = t.WriteString(eventEnd)
	t.hasOutput, t.outputSent = true, true
}

// reset drops the output so far, none of which may have been sent.
func (t *eventText) reset() { t.heldBack, t.hasOutput, t.raw, t.framed = nil, false, false, false }

// addPing writes a comment, unless it would land inside an event.
func (t *eventText) addPing() {
	if t.betweenEvents() {
		_, _ = t.WriteString(eventPing)
	}
}

// addEnd adds what was held back, and OpenAI's last event unless the worker writes its own.
func (t *eventText) addEnd() {
	t.writeHeldBack()
	if t.framed && !t.raw {
		_, _ = t.WriteString(eventDone)
	}
}

// writeHeldBack adds what was held back.
func (t *eventText) writeHeldBack() {
	_, _ = t.Write(t.heldBack)
	t.heldBack = nil
}
