package openai

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// errRepr means that a text is no literal of Python that is read here.
var errRepr = errors.New("api: no literal of Python")

// reprDepth bounds how deep literals may lie in each other.
const reprDepth = 32

// Published workers need it: RunPod's Python SDK ends a job whose handler yields
// {"error": {…}}, as its vLLM worker does, with the dict's repr as the error text.

// parseRepr reads what Python's repr makes of dicts, lists, tuples, strings,
// numbers, True, False and None. Keys that are no strings are left out. It
// returns a map[string]any, []any, string, int64, float64, bool or nil, or
// errRepr.
func parseRepr(text string) (any, error) {
	r := reprReader{rest: text}
	value, err := r.value(0)
	if r.space(); err == nil && r.rest != "" {
		return nil, errRepr
	}
	return value, err
}

// reprReader reads literals off the front of rest.
type reprReader struct{ rest string }

func (r *reprReader) space() { r.rest = strings.TrimLeft(r.rest, " \t\r\n") }

// skip advances past text and returns true if the rest begins with it.
func (r *reprReader) skip(text string) bool {
	r.space()
	rest, ok := strings.CutPrefix(r.rest, text)
	r.rest = rest
	return ok
}

func (r *reprReader) value(depth int) (any, error) {
	r.space()
	if r.rest == "" || depth > reprDepth {
		return nil, errRepr
	}
	switch r.rest[0] {
	case '{':
		return r.dict(depth)
	case '[':
		return r.list("[", "]", depth)
	case '(':
		return r.list("(", ")", depth)
	case '\'', '"':
		return r.text()
	}
	return r.word()
}

func (r *reprReader) dict(depth int) (any, error) {
	fields := map[string]any{}
	for r.skip("{"); !r.skip("}"); {
		key, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if !r.skip(":") {
			return nil, errRepr
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if name, ok := key.(string); ok {
			fields[name] = value
		}
		if r.skip("}") {
			return fields, nil
		}
		if !r.skip(",") {
			return nil, errRepr
		}
	}
	return fields, nil
}

func (r *reprReader) list(begin, end string, depth int) (any, error) {
	values := []any{}
	for r.skip(begin); !r.skip(end); {
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
		if r.skip(end) {
			return values, nil
		}
		if !r.skip(",") {
			return nil, errRepr
		}
	}
	return values, nil
}

// word reads a name or a number.
func (r *reprReader) word() (any, error) {
	end := strings.IndexAny(r.rest, ",:]}) \t\r\n")
	if end < 0 {
		end = len(r.rest)
	}
	word := r.rest[:end]
	r.rest = r.rest[end:]
	switch word {
	case "None":
		return nil, nil
	case "True":
		return true, nil
	case "False":
		return false, nil
	}
	if n, err := strconv.ParseInt(word, 10, 64); err == nil {
		return n, nil
	}
	if n, err := strconv.ParseFloat(word, 64); err == nil {
		return n, nil
	}
	return nil, errRepr
}

// text reads a string.
func (r *reprReader) text() (any, error) {
	quote := r.rest[0]
	rest := r.rest[1:]
	var b strings.Builder
	for {
		end := strings.IndexAny(rest, string(quote)+`\`)
		if end < 0 {
			return nil, errRepr
		}
		b.WriteString(rest[:end])
		rest = rest[end:]
		if rest[0] == quote {
			r.rest = rest[1:]
			return b.String(), nil
		}
		size, ok := unescape(&b, rest[1:])
		if !ok {
			return nil, errRepr
		}
		rest = rest[1+size:]
	}
}

// unescape writes what an escape means whose backslash was read, and returns
// how long the rest of it is.
func unescape(b *strings.Builder, text string) (size int, ok bool) {
	if text == "" {
		return 0, false
	}
	switch text[0] {
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'r':
		b.WriteByte('\r')
	case '\'', '"', '\\':
		b.WriteByte(text[0])
	case 'x', 'u', 'U':
		return unescapeHex(b, text)
	default:
		return 0, false // repr makes no others
	}
	return 1, true
}

// unescapeHex is for \xNN, \uNNNN and \UNNNNNNNN. Halves of a surrogate pair,
// which no text has, become U+FFFD.
func unescapeHex(b *strings.Builder, text string) (size int, ok bool) {
	size = 1 + map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[0]]
	if len(text) < size {
		return 0, false
	}
	n, err := strconv.ParseUint(text[1:size], 16, 32)
	if err != nil || n > utf8.MaxRune {
		return 0, false
	}
	b.WriteRune(rune(n))
	return size, true
}
