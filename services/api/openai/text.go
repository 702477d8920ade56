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
	begun   []byte // an event that has not ended
	said    bool   // the worker said something
	shown   bool   // some of that was written, or is about to be
	raw     bool   // strings
	framed  bool   // values, of which events were made
	written bool   // something was flushed, and last is its end
	last    [4]byte
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

// flushed forgets what was written.
func (t *eventText) flushed() {
	t.written = t.written || t.Len() > 0
	copy(t.last[:], t.tail())
	if t.Cap() > keptBuffer {
		t.Buffer = bytes.Buffer{}
	}
	t.Reset()
}

// tail is the last bytes of the stream.
func (t *eventText) tail() []byte {
	all := append(t.last[:len(t.last):len(t.last)], t.Bytes()[max(0, t.Len()-len(t.last)):]...)
	return all[len(all)-len(t.last):]
}

// between reports whether no event is half written.
func (t *eventText) between() bool {
	if !t.written && t.Len() == 0 {
		return true
	}
	tail := t.tail()
	return bytes.HasSuffix(tail, []byte(eventEnd)) || bytes.HasSuffix(tail, []byte("\r\n\r\n"))
}

// add adds an output of the worker.
func (t *eventText) add(output json.RawMessage) {
	output = bytes.TrimSpace(output)
	if text, ok := stringOf(output); ok {
		if text != "" {
			t.addText(text)
			t.said, t.raw = true, true
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
		t.event(output)
		t.framed = true
	}
}

// addText writes the whole events of it; the rest too, if that begins none.
func (t *eventText) addText(text string) {
	kept := t.between()
	all := slices.Concat(t.begun, []byte(text))
	whole := len(all)
	if kept {
		whole = max(endOf(all, eventEnd), endOf(all, "\r\n\r\n"))
		if !beginsEvent(all[whole:]) || len(all)-whole > maxHeldBack {
			whole = len(all)
		}
	}
	_, _ = t.Write(all[:whole])
	t.shown = t.shown || whole > 0
	t.begun = bytes.Clone(all[whole:])
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

// fail writes the event that says how the stream failed, in place of the one
// that was begun, unless that lacks nothing but its end.
func (t *eventText) fail(value []byte) {
	if data, ok := bytes.CutPrefix(t.begun, []byte("data:")); !ok || !json.Valid(data) {
		t.begun = nil
	}
	t.event(value)
}

// event writes a value as an event.
func (t *eventText) event(value []byte) {
	t.rest()
	if !t.between() {
		_, _ = t.WriteString(eventEnd)
	}
	_, _ = t.WriteString(eventPrefix)
	_ = json.Compact(&t.Buffer, value) // it is JSON; an event's data ends with the line
	_, _ = t.WriteString(eventEnd)
	t.said, t.shown = true, true
}

// reset forgets what was said, of which nothing may be shown.
func (t *eventText) reset() { t.begun, t.said, t.raw, t.framed = nil, false, false, false }

// ping writes a comment, unless it would land inside an event.
func (t *eventText) ping() {
	if t.between() {
		_, _ = t.WriteString(eventPing)
	}
}

// done writes the rest, and OpenAI's end unless the worker writes its own.
func (t *eventText) done() {
	t.rest()
	if t.framed && !t.raw {
		_, _ = t.WriteString(eventDone)
	}
}

// rest writes what was kept back.
func (t *eventText) rest() {
	_, _ = t.Write(t.begun)
	t.begun = nil
}
