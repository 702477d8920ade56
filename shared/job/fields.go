package job

import (
	"bytes"
	"encoding/json"
	"slices"
)

// fieldsOf returns copies of the named fields of an object, which must be
// valid JSON; of a name that comes twice, the last one. It differs from
// encoding/json in that "Policy" is not "policy" but a key that we do not
// know, and looks at 20 MB only once.
func fieldsOf(object []byte, names ...string) map[string]json.RawMessage {
	fields := make(map[string]json.RawMessage, len(names))
	at := bytes.IndexByte(object, '{') + 1
	for {
		at += spaces(object[at:])
		switch object[at] {
		case '}':
			return fields
		case ',':
			at++
			continue
		}
		end := at + StringSize(object[at:])
		name := unquoted(object[at:end])
		at = end + spaces(object[end:]) + 1 // the colon
		at += spaces(object[at:])
		size := valueSize(object[at:])
		if slices.Contains(names, name) {
			fields[name] = bytes.Clone(object[at : at+size])
		}
		at += size
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

// spaces counts the white space that text begins with.
func spaces(text []byte) int {
	n := 0
	for n < len(text) && isSpace(text[n]) {
		n++
	}
	return n
}

// StringSize is the length of the JSON string that text begins with, quotes included; all of
// text if the string has no end.
func StringSize(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// valueSize is the length of the value that text begins with. It ends at what
// closes or goes on in the object around it.
func valueSize(text []byte) int {
	depth := 0
	for i := 0; ; i++ {
		switch text[i] {
		case '"':
			i += StringSize(text[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return len(bytes.TrimRight(text[:i], " \t\r\n"))
			}
			depth--
		case ',':
			if depth == 0 {
				return len(bytes.TrimRight(text[:i], " \t\r\n"))
			}
		}
	}
}

// unquoted is the text of a string.
func unquoted(quoted []byte) string {
	if !bytes.ContainsRune(quoted, '\\') {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // it is valid
	return s
}
