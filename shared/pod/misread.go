package pod

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Misread says in the document's own words why encoding/json could not read
// raw, nil if err is nil. The Field is the path of the value that is wrong, as
// "env.A" or "command[0]", "" if it is the whole document, and "an instant" if
// one is wrong: which is not known then.
func Misread(raw []byte, err error) *FieldError {
	if err == nil {
		return nil
	}
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &FieldError{pathAt(raw, mistyped.Offset), "must be " + wanted(mistyped)}
	}
	if _, name, unknown := strings.Cut(err.Error(), "unknown field "); unknown {
		if plain, err := strconv.Unquote(name); err == nil {
			return &FieldError{plain, "is not a known field"}
		}
	}
	if _, untimely := errors.AsType[*time.ParseError](err); untimely || strings.HasPrefix(err.Error(), notText) {
		return &FieldError{"an instant", "must be like 2026-01-31T12:00:00Z"} // encoding/json does not say where
	}
	return &FieldError{"", "is not valid JSON"}
}

// notText begins the error of a time.Time that is read from no string; it has
// no type.
const notText = "Time.UnmarshalJSON:"

// wanted says in JSON's words what the value should have been.
func wanted(wrong *json.UnmarshalTypeError) string {
	switch wrong.Type.Kind() { //nolint:exhaustive // no other kind is in a document
	case reflect.Int, reflect.Int64:
		text, number := strings.CutPrefix(wrong.Value, "number ")
		if n, _ := strconv.ParseFloat(text, 64); number && n == math.Trunc(n) { // as 1e30
			return "a whole number in at most 18 digits"
		}
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

// maxPath bounds a path in an error text, in bytes.
const maxPath = 200

// pathAt is the path of the value that ends at the offset or, if it is an object
// or an array, begins there. It is "" for the document itself, and cut before a
// name that people could not read.
func pathAt(raw []byte, offset int64) string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // 1e400 is a number, and no float64
	var path steps
	for {
		token, err := decoder.Token()
		if err != nil {
			return "" // io.EOF: no value is there
		}
		if path.take(token) && decoder.InputOffset() >= offset {
			return path.String()
		}
		path.leave(token)
	}
}

// step is an object or array that has begun, and where in it we are.
type step struct {
	array, named bool
	name         string
	index        int
}

type steps []step

// take moves to what the token is, and reports whether a value begins with it.
func (s steps) take(token json.Token) bool {
	end := token == json.Delim('}') || token == json.Delim(']')
	if len(s) == 0 || end {
		return !end
	}
	at := &s[len(s)-1]
	switch name, text := token.(string); {
	case at.array:
		at.index++
	case !at.named && text:
		at.name, at.named = name, true
		return false
	}
	at.named = false
	return true
}

// leave enters what begins with the token, or leaves what ends with it.
func (s *steps) leave(token json.Token) {
	switch token {
	case json.Delim('{'):
		*s = append(*s, step{})
	case json.Delim('['):
		*s = append(*s, step{array: true, index: -1})
	case json.Delim('}'), json.Delim(']'):
		*s = (*s)[:len(*s)-1]
	}
}

func (s steps) String() string {
	var path strings.Builder
	for i, at := range s {
		switch {
		case at.array:
			path.WriteString("[" + strconv.Itoa(at.index) + "]")
			continue
		case path.Len()+len(at.name) > maxPath || strings.ContainsFunc(at.name, unprintable):
			return path.String()
		case i > 0:
			path.WriteByte('.')
		}
		path.WriteString(at.name)
	}
	return path.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
