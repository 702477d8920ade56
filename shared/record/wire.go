package record

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"flightline/shared/job"
)

// wire is the header's JSON. Instants are Unix milliseconds, durations
// milliseconds. InputSize, S3ConfigSize, OutputSize and ErrorSize are the lengths in
// bytes of the parts of the body, in this order. The fields have the names of Record;
// some keys are older and stay, because records that are stored have them.
//
// It is written and read three times each in the life of a job, and what a job
// costs bounds how many a worker can run in a second. So append and parse do what
// encoding/json would do with the tags, without reflection; parse leaves what
// it does not know to encoding/json. A new field must be added to fields too.
type wire struct {
	Status           job.Status `json:"status"`
	Mode             job.Mode   `json:"mode"`
	Class            job.Class  `json:"class"`
	Attempt          int64      `json:"attempt"`
	Run              int64      `json:"run,omitempty"`
	Lost             int64      `json:"lost,omitempty"`
	Earlier          int64      `json:"earlier,omitempty"`
	Submitted        int64      `json:"submitted"`
	Queued           int64      `json:"queued"`
	Started          int64      `json:"started,omitempty"`
	Finished         int64      `json:"finished,omitempty"`
	Deadline         int64      `json:"deadline,omitempty"`
	Expires          int64      `json:"expires"`
	RetainUntil      int64      `json:"retainUntil,omitempty"`
	ExecutionTimeout int64      `json:"timeout"`
	Retention        int64      `json:"keep"`
	Lease            int64      `json:"lease"`
	QueueSeq         uint64     `json:"queueSeq,omitempty"`
	QueueServer      string     `json:"queueServer,omitempty"`
	QueueExpires     int64      `json:"queueExpires"`
	AckSubject       string     `json:"ack,omitempty"`
	Holder           string     `json:"holder,omitempty"`
	Changed          int64      `json:"changed"`
	Requeued         bool       `json:"requeued,omitempty"`
	Detached         bool       `json:"detached,omitempty"`
	EndSeq           uint64     `json:"endSeq,omitempty"`
	StartTimes       []int64    `json:"begun,omitempty"`
	Emitted          bool       `json:"emitted,omitempty"`
	ExternalPayload  bool       `json:"beside,omitempty"`
	RetainOnDisk     bool       `json:"kept,omitempty"`
	AckTimeout       int64      `json:"confirm,omitempty"`
	Undelivered      int64      `json:"astray,omitempty"`
	Worker           string     `json:"worker,omitempty"`
	Webhook          string     `json:"webhook,omitempty"`
	Trace            string     `json:"trace,omitempty"`
	Origin           string     `json:"origin,omitempty"`
	InputSize        int64      `json:"input,omitempty"`
	S3ConfigSize     int64      `json:"s3,omitempty"`
	OutputSize       int64      `json:"output,omitempty"`
	ErrorSize        int64      `json:"error,omitempty"`
	// InlineOutput and InlineError are a short output and error, here instead of in
	// the body, so that a waiter needs no second read.
	InlineOutput json.RawMessage `json:"said,omitempty"`
	InlineError  string          `json:"why,omitempty"`
	// Cause is the line of a long error that says what went wrong, for those who read the
	// header alone.
	Cause     string      `json:"cause,omitempty"`
	InputRef  *PayloadRef `json:"inRef,omitempty"`
	OutputRef *PayloadRef `json:"outRef,omitempty"`
}

// field is one member of the JSON, of one kind.
type field struct {
	key    string
	always bool // written even if it is zero
	number func(*wire) *int64
	seq    func(*wire) *uint64
	text   func(*wire) *string
	flag   func(*wire) *bool
	raw    func(*wire) *json.RawMessage // JSON as it is
	other  func(*wire) any              // nil if there is nothing to write
}

// fields are those of wire, in their order.
var fields = []field{
	{key: "status", always: true, text: func(w *wire) *string { return (*string)(&w.Status) }},
	{key: "mode", always: true, text: func(w *wire) *string { return (*string)(&w.Mode) }},
	{key: "class", always: true, text: func(w *wire) *string { return (*string)(&w.Class) }},
	{key: "attempt", always: true, number: func(w *wire) *int64 { return &w.Attempt }},
	{key: "run", number: func(w *wire) *int64 { return &w.Run }},
	{key: "lost", number: func(w *wire) *int64 { return &w.Lost }},
	{key: "earlier", number: func(w *wire) *int64 { return &w.Earlier }},
	{key: "submitted", always: true, number: func(w *wire) *int64 { return &w.Submitted }},
	{key: "queued", always: true, number: func(w *wire) *int64 { return &w.Queued }},
	{key: "started", number: func(w *wire) *int64 { return &w.Started }},
	{key: "finished", number: func(w *wire) *int64 { return &w.Finished }},
	{key: "deadline", number: func(w *wire) *int64 { return &w.Deadline }},
	{key: "expires", always: true, number: func(w *wire) *int64 { return &w.Expires }},
	{key: "retainUntil", number: func(w *wire) *int64 { return &w.RetainUntil }},
	{key: "timeout", always: true, number: func(w *wire) *int64 { return &w.ExecutionTimeout }},
	{key: "keep", always: true, number: func(w *wire) *int64 { return &w.Retention }},
	{key: "lease", always: true, number: func(w *wire) *int64 { return &w.Lease }},
	{key: "queueSeq", seq: func(w *wire) *uint64 { return &w.QueueSeq }},
	{key: "queueServer", text: func(w *wire) *string { return &w.QueueServer }},
	{key: "queueExpires", always: true, number: func(w *wire) *int64 { return &w.QueueExpires }},
	{key: "ack", text: func(w *wire) *string { return &w.AckSubject }},
	{key: "holder", text: func(w *wire) *string { return &w.Holder }},
	{key: "changed", always: true, number: func(w *wire) *int64 { return &w.Changed }},
	{key: "requeued", flag: func(w *wire) *bool { return &w.Requeued }},
	{key: "detached", flag: func(w *wire) *bool { return &w.Detached }},
	{key: "endSeq", seq: func(w *wire) *uint64 { return &w.EndSeq }},
	{key: "begun", other: func(w *wire) any {
		if len(w.StartTimes) == 0 {
			return nil
		}
		return w.StartTimes
	}},
	{key: "emitted", flag: func(w *wire) *bool { return &w.Emitted }},
	{key: "beside", flag: func(w *wire) *bool { return &w.ExternalPayload }},
	{key: "kept", flag: func(w *wire) *bool { return &w.RetainOnDisk }},
	{key: "confirm", number: func(w *wire) *int64 { return &w.AckTimeout }},
	{key: "astray", number: func(w *wire) *int64 { return &w.Undelivered }},
	{key: "worker", text: func(w *wire) *string { return &w.Worker }},
	{key: "webhook", text: func(w *wire) *string { return &w.Webhook }},
	{key: "trace", text: func(w *wire) *string { return &w.Trace }},
	{key: "origin", text: func(w *wire) *string { return &w.Origin }},
	{key: "input", number: func(w *wire) *int64 { return &w.InputSize }},
	{key: "s3", number: func(w *wire) *int64 { return &w.S3ConfigSize }},
	{key: "output", number: func(w *wire) *int64 { return &w.OutputSize }},
	{key: "error", number: func(w *wire) *int64 { return &w.ErrorSize }},
	{key: "said", raw: func(w *wire) *json.RawMessage { return &w.InlineOutput }},
	{key: "why", text: func(w *wire) *string { return &w.InlineError }},
	{key: "cause", text: func(w *wire) *string { return &w.Cause }},
	{key: "inRef", other: func(w *wire) any { return w.InputRef.orNothing() }},
	{key: "outRef", other: func(w *wire) any { return w.OutputRef.orNothing() }},
}

func (p *PayloadRef) orNothing() any {
	if p == nil {
		return nil
	}
	return p
}

// append writes w as encoding/json would, HTML's characters left as they are.
func (w *wire) append(b []byte) ([]byte, error) {
	var err error
	b = append(b, '{')
	for i := range fields {
		if b, err = fields[i].append(b, w); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func (f *field) append(b []byte, w *wire) ([]byte, error) {
	switch {
	case f.number != nil:
		if n := *f.number(w); n != 0 || f.always {
			b = strconv.AppendInt(f.appendKey(b), n, 10)
		}
	case f.seq != nil:
		if n := *f.seq(w); n != 0 || f.always {
			b = strconv.AppendUint(f.appendKey(b), n, 10)
		}
	case f.text != nil:
		if text := *f.text(w); text != "" || f.always {
			return appendText(f.appendKey(b), text)
		}
	case f.flag != nil:
		if *f.flag(w) {
			b = append(f.appendKey(b), "true"...)
		}
	case f.raw != nil:
		raw := *f.raw(w)
		switch {
		case len(raw) == 0:
		case bytes.ContainsAny(raw, "\r\n"): // a header has one line
			return job.AppendJSON(f.appendKey(b), raw)
		default:
			b = append(f.appendKey(b), raw...)
		}
	case f.other != nil:
		if v := f.other(w); v != nil {
			return job.AppendJSON(f.appendKey(b), v)
		}
	}
	return b, nil
}

func (f *field) appendKey(b []byte) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, f.key...)
	return append(b, '"', ':')
}

func appendText(b []byte, text string) ([]byte, error) {
	if !needsNoEscape(text) {
		return job.AppendJSON(b, text)
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"'), nil
}

// needsNoEscape reports whether JSON has the text as it is between quotes.
func needsNoEscape(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// wirePool has zero values of wire.
var wirePool = sync.Pool{New: func() any { return new(wire) }}

// parseWire reads the header's JSON.
func parseWire(text string) (w wire, err error) {
	p := wirePool.Get().(*wire) //nolint:forcetypeassert // nothing else is in it
	if !p.parse(text) {
		*p = wire{}
		err = json.Unmarshal([]byte(text), p)
	}
	w, *p = *p, wire{}
	wirePool.Put(p)
	return w, err
}

// parse reads what append writes. It reports false if that has escapes or nested
// values, or is anything else: then w must not be used.
func (w *wire) parse(s string) bool {
	if s == "" || s[0] != '{' {
		return false
	}
	for at := 0; ; at++ {
		key, rest, ok := cutText(s[1:])
		if !ok || rest == "" || rest[0] != ':' {
			return false
		}
		if at = fieldIndex(key, at); at < 0 {
			return false
		}
		if s, ok = fields[at].set(w, rest[1:]); !ok || s == "" {
			return false
		}
		if s[0] != ',' {
			return s == "}"
		}
	}
}

// fieldIndex returns the index of a key in fields, or -1. It tries those from the index
// from on first, because keys mostly come in the order of fields.
func fieldIndex(key string, from int) int {
	from = min(from, len(fields))
	for i := range fields[from:] {
		if fields[from+i].key == key {
			return from + i
		}
	}
	for i := range fields[:from] {
		if fields[i].key == key {
			return i
		}
	}
	return -1
}

// set cuts the field's value off the beginning of s and stores it in w.
func (f *field) set(w *wire, s string) (rest string, ok bool) {
	switch {
	case f.number != nil:
		var digits string
		digits, rest = cutDigits(s)
		n, err := strconv.ParseInt(digits, 10, 64)
		*f.number(w), ok = n, err == nil
	case f.seq != nil:
		var digits string
		digits, rest = cutDigits(s)
		n, err := strconv.ParseUint(digits, 10, 64)
		*f.seq(w), ok = n, err == nil
	case f.text != nil:
		*f.text(w), rest, ok = cutText(s)
	case f.flag != nil:
		rest, ok = strings.CutPrefix(s, "true")
		*f.flag(w) = ok
	case f.raw != nil:
		end := endOfValue(s)
		*f.raw(w) = json.RawMessage(s[:end])
		return s[end:], end > 0
	}
	return rest, ok
}

func cutDigits(s string) (digits, rest string) {
	end := 0
	for end < len(s) && (s[end] >= '0' && s[end] <= '9' || s[end] == '-') {
		end++
	}
	return s[:end], s[end:]
}

// cutText cuts a JSON string without escapes off the beginning of s.
func cutText(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", s, false
	}
	for end := 1; end < len(s); end++ {
		switch c := s[end]; {
		case c == '"':
			return s[1:end], s[end+1:], true
		case c < ' ' || c > '~' || c == '\\': // as in needsNoEscape
			return "", s, false
		}
	}
	return "", s, false
}

// endOfValue is where the JSON value ends that s begins with: before a comma
// or a bracket that is not its own. 0 means that s has none.
func endOfValue(s string) int {
	depth, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case (c == '}' || c == ']' || c == ',') && depth == 0:
			return i
		case c == '}' || c == ']':
			depth--
		}
	}
	return 0
}
