package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"flightline/shared/job"
)

// kind is what a post to job-done says.
type kind int

const (
	completed kind = iota
	failed
	progress
)

// result is a post to job-done, understood.
type result struct {
	kind   kind
	output json.RawMessage // nil: none
	err    string          // of failed
	// stopPod: the worker restarts itself after the job.
	stopPod bool
}

// unreadable begins the error of a job whose result is no JSON object, which no
// SDK of RunPod posts.
const unreadable = "invalid_result: the worker posted a result that is no JSON object"

// readResult understands what the SDKs post, whatever it is:
//
//	{"output": X}                         completed
//	{}                                    completed without output
//	{"error": E}, {"output": X, "error": E}  failed; E is a text, or becomes one,
//	                                      and an X that is not empty stays beside it
//	{"status": "IN_PROGRESS", "output": P}   progress
//	…, "stopPod": true                       the worker restarts itself
//
// coding is as of object. The result shares no memory with body.
func readResult(body []byte, coding string) result {
	fields, err := object(body, coding)
	if err != nil {
		return result{kind: failed, err: unreadable + ": " + err.Error()}
	}
	r := result{output: fields["output"], stopPod: truthy(fields["stopPod"])}
	if string(bytes.TrimSpace(fields["status"])) == `"IN_PROGRESS"` {
		r.kind = progress
		return r
	}
	e := fields["error"]
	if string(e) == "null" && !json.Valid(body) { // to the SDK NaN is an error
		if named, err := object(withoutNaN(body, strconv.Quote), coding); err == nil {
			e = named["error"]
		}
	}
	if truthy(e) {
		r.kind, r.err = failed, textOf(e)
		if !truthy(r.output) {
			r.output = nil
		}
	}
	return r
}

// errNoObject is JSON that is another value than an object.
var errNoObject = errors.New("it is JSON of another kind")

// object reads a JSON object as Python writes it, numbers that are none
// included. coding is the body's Content-Encoding, which is not undone. The error says
// what is wrong with the text.
func object(body []byte, coding string) (fields map[string]json.RawMessage, err error) {
	if json.Unmarshal(body, &fields) != nil {
		fields = nil
		err = json.Unmarshal(finite(body), &fields)
	}
	if err != nil && coding != "" {
		return nil, fmt.Errorf("its Content-Encoding is %.40q; send it as it is", coding)
	}
	if syntax, bad := errors.AsType[*json.SyntaxError](err); bad {
		return nil, fmt.Errorf("%d bytes, %w", len(body), syntax)
	}
	if err != nil || fields == nil {
		return nil, errNoObject
	}
	return fields, nil
}

// truthy is as Python has it, for what may stand under error and stopPod.
func truthy(v json.RawMessage) bool {
	switch string(bytes.TrimSpace(v)) {
	case "", "null", "false", "0", `""`, "{}", "[]":
		return false
	}
	return true
}

// textOf is a string's text, or the JSON of anything else.
func textOf(v json.RawMessage) string {
	var text string
	if json.Unmarshal(v, &text) == nil {
		return text
	}
	var line bytes.Buffer
	if json.Compact(&line, v) != nil {
		return string(v)
	}
	return line.String()
}

// notNumbers are what Python writes for numbers that JSON has not, the longest
// first.
var notNumbers = [][]byte{[]byte("-Infinity"), []byte("Infinity"), []byte("NaN")}

// finite replaces them, outside strings, by null.
func finite(body []byte) []byte {
	return withoutNaN(body, func(string) string { return "null" })
}

// withoutNaN replaces each of them, outside strings.
func withoutNaN(body []byte, by func(word string) string) []byte {
	out := make([]byte, 0, len(body))
	for i := 0; i < len(body); {
		if body[i] == '"' {
			end := i + job.StringSize(body[i:])
			out = append(out, body[i:end]...)
			i = end
			continue
		}
		if word := notNumber(body[i:]); word > 0 {
			out = append(out, by(string(body[i:i+word]))...)
			i += word
			continue
		}
		out = append(out, body[i])
		i++
	}
	return out
}

// notNumber is the length of the word that text begins with, 0 if none.
func notNumber(text []byte) int {
	for _, word := range notNumbers {
		if bytes.HasPrefix(text, word) {
			return len(word)
		}
	}
	return 0
}
