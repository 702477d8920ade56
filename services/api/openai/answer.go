package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// reply is an answer that is sent as it is.
type reply struct {
	status int
	kind   string // the content type
	body   []byte
}

func send(c *fiber.Ctx, r reply) error {
	c.Set(fiber.HeaderContentType, r.kind)
	if r.status == http.StatusServiceUnavailable {
		c.Set(fiber.HeaderRetryAfter, "1")
	}
	return c.Status(r.status).Send(r.body)
}

// emptyOutput reports whether a job has no output of its own: a generator
// without aggregation ends with none, or with an empty list.
func emptyOutput(output json.RawMessage) bool {
	text := bytes.TrimSpace(output)
	inner, isList := bytes.CutPrefix(text, []byte("["))
	return len(text) == 0 || string(text) == "null" || isList && string(bytes.TrimSpace(inner)) == "]"
}

// outputOf is what a chunk holds: the output of {"output": …}, else all of it.
func outputOf(data json.RawMessage) json.RawMessage {
	var chunk struct {
		Output json.RawMessage `json:"output"`
	}
	if json.Unmarshal(data, &chunk) == nil && chunk.Output != nil {
		return chunk.Output
	}
	return data
}

// outputReply answers with a job's output: that of a handler which returned it, or
// the list of all that a generator yielded.
func outputReply(output json.RawMessage) reply {
	if list, ok := elementsOf(output); ok {
		return joinedReply(list)
	}
	return joinedReply([]json.RawMessage{output})
}

// joinedReply answers with what a worker put out: with the only value, or with the
// strings one after the other. Several values that are no strings stay a list.
func joinedReply(outputs []json.RawMessage) reply {
	text, all := textsOf(outputs)
	switch {
	case all && json.Valid([]byte(text)):
		return valueReply([]byte(text))
	case all:
		return reply{http.StatusOK, fiber.MIMETextPlainCharsetUTF8, []byte(text)}
	case len(outputs) == 1:
		return valueReply(outputs[0])
	}
	list, _ := json.Marshal(outputs) // they were JSON
	return reply{http.StatusOK, fiber.MIMEApplicationJSON, list}
}

// valueReply answers with one JSON value; with an error object, under its
// status, though the job COMPLETED.
func valueReply(value json.RawMessage) reply {
	if f := failureIn(value); f != nil {
		return f.reply()
	}
	return reply{http.StatusOK, fiber.MIMEApplicationJSON, value}
}

// textsOf joins the outputs if all of them, and at least one, are strings.
func textsOf(outputs []json.RawMessage) (text string, all bool) {
	var b strings.Builder
	for _, output := range outputs {
		part, ok := stringOf(output)
		if !ok {
			return "", false
		}
		b.WriteString(part)
	}
	return b.String(), len(outputs) > 0
}

func stringOf(value json.RawMessage) (text string, ok bool) {
	if value = bytes.TrimSpace(value); len(value) == 0 || value[0] != '"' {
		return "", false
	}
	return text, json.Unmarshal(value, &text) == nil
}

func elementsOf(value json.RawMessage) (list []json.RawMessage, ok bool) {
	if value = bytes.TrimSpace(value); len(value) == 0 || value[0] != '[' {
		return nil, false
	}
	return list, json.Unmarshal(value, &list) == nil
}
