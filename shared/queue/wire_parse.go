package queue

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
)

// wires are zero.
var wires = sync.Pool{New: func() any { return new(wire) }}

// parseWire reads the header's JSON.
func parseWire(text string) (w wire, err error) {
	p := wires.Get().(*wire) //nolint:forcetypeassert // nothing else is in it
	if !p.parse(text) {
		*p = wire{}
		err = json.Unmarshal([]byte(text), p)
	}
	w, *p = *p, wire{}
	wires.Put(p)
	return w, err
}

// parse reads what append writes, and reports false where that has escapes or
// is nested, and if it meets anything else: then w is not to be used.
func (w *wire) parse(s string) bool {
	if s == "" || s[0] != '{' {
		return false
	}
	for at := 0; ; at++ {
		key, rest, ok := cutText(s[1:])
		if !ok || rest == "" || rest[0] != ':' {
			return false
		}
		if at = find(key, at); at < 0 {
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

// find returns the index of a field, or -1. It looks from there on, since they
// come in their order.
func find(key string, from int) int {
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

// set takes the field's value off s.
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

// cutText takes a string off s that stands there as it is.
func cutText(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", s, false
	}
	for end := 1; end < len(s); end++ {
		switch c := s[end]; {
		case c == '"':
			return s[1:end], s[end+1:], true
		case c < ' ' || c > '~' || c == '\\': // as plain has it
			return "", s, false
		}
	}
	return "", s, false
}

// endOfValue is where the JSON value ends that s begins with: before a comma
// or a bracket that is not its own. 0 means that there is none.
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
