package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/job"
	"flightline/shared/web"
)

// statusClientClosed is what CANCELLED is answered with, nginx's "client closed
// request". A 5xx would make OpenAI's clients submit again what somebody has
// cancelled on purpose.
const statusClientClosed = 499

// Codes of this route that are no error of ours but a job's end.
const (
	CodeFailed     = "job_failed"
	CodeTimedOut   = "job_timed_out"
	CodeCancelled  = "job_cancelled"
	CodeExpired    = "job_expired"
	CodeWorkerLost = "worker_lost"
	CodeNoOutput   = "no_output"
	CodeTooLarge   = "output_too_large"
)

// failure is an error to tell an OpenAI client: body is {"error": {…}}.
type failure struct {
	status int
	body   json.RawMessage
}

func (f *failure) reply() reply { return reply{f.status, fiber.MIMEApplicationJSON, f.body} }

func newFailure(status int, text, kind string, code any) *failure {
	kind = cmp.Or(kind, web.OpenAIType(status))
	body, _ := json.Marshal(web.OpenAIBody{Error: web.OpenAIError{Message: text, Type: kind, Code: code}}) // texts and numbers are always JSON
	return &failure{status, body}
}

func expired() *failure {
	return newFailure(http.StatusGatewayTimeout, "the job's ttl was over before it was done", "", CodeExpired)
}

func noOutput() *failure {
	return newFailure(http.StatusBadGateway, "the worker put out nothing", "", CodeNoOutput)
}

func tooLarge() *failure {
	return newFailure(http.StatusBadGateway, "the worker's output is larger than 20 MB", "", CodeTooLarge)
}

func workerLost() *failure {
	return newFailure(http.StatusBadGateway, "the worker was lost in the middle of its answer", "", CodeWorkerLost)
}

// failureOf is the error for a job that ended, nil if it COMPLETED.
func failureOf(j *job.Job) *failure {
	switch j.Status {
	case job.Failed:
		if strings.HasPrefix(j.Error, job.ErrTextOutputTooLarge) {
			return tooLarge()
		}
		return failureOfText(j.Error).with(j.Output)
	case job.TimedOut:
		return newFailure(http.StatusGatewayTimeout, "the job timed out: "+j.Error, "", CodeTimedOut)
	case job.Cancelled:
		return newFailure(statusClientClosed, "the job was cancelled", "", CodeCancelled)
	case job.Completed, job.InQueue, job.InProgress:
	}
	return nil
}

// with adds, as error.output, what the worker put out beside its error. A large
// output is left out; /status has it.
func (f *failure) with(output json.RawMessage) *failure {
	var body struct {
		Error map[string]json.RawMessage `json:"error"`
	}
	if emptyOutput(output) || len(output) > web.SmallBody || json.Unmarshal(f.body, &body) != nil || body.Error == nil {
		return f
	}
	body.Error["output"] = output
	with, err := json.Marshal(body)
	if err != nil {
		return f
	}
	return &failure{f.status, with}
}

// failureOfText reads a job's error: a dict as RunPod's SDK makes a text of it
// (Python's repr), JSON, what an engine answered, or words.
func failureOfText(text string) *failure {
	var fields map[string]any
	if json.Unmarshal([]byte(text), &fields) != nil || fields == nil {
		value, err := parseRepr(text)
		if fields, _ = value.(map[string]any); err != nil {
			fields = nil
		}
	}
	if fields == nil {
		return failureOfWords(text, "", CodeFailed, http.StatusInternalServerError)
	}
	if inner, ok := fields["error"].(map[string]any); ok {
		fields = inner
	}
	for _, name := range []string{"message", "error_message", "error"} {
		if words, ok := fields[name].(string); ok {
			kind, _ := fields["type"].(string)
			return failureOfWords(words, kind, fields["code"], statusOfError(fields["code"], kind))
		}
	}
	return failureOfWords(text, "", CodeFailed, http.StatusInternalServerError)
}

// upstream is how worker-vllm, and our own worker, report what the engine answered.
var upstream = regexp.MustCompile(`(?s)^(?:vLLM|upstream) returned HTTP ([45]\d\d): (.*)$`)

// failureOfWords is an error of this text, or what the engine answered that it
// quotes: its status and its body.
func failureOfWords(words, kind string, code any, status int) *failure {
	quoted := upstream.FindStringSubmatch(words)
	if quoted == nil {
		if !encodable(code) {
			code = CodeFailed
		}
		return newFailure(status, words, kind, code)
	}
	status, _ = strconv.Atoi(quoted[1]) // three digits
	body := json.RawMessage(strings.TrimSpace(quoted[2]))
	if !json.Valid(body) || body[0] != '{' {
		return newFailure(status, quoted[2], "", CodeFailed)
	}
	if f := failureIn(body); f != nil {
		body = f.body
	}
	return &failure{status, body}
}

// encodable reports whether a code that was read is a text or a number that
// JSON has. nil, where none was, is not.
func encodable(code any) bool {
	switch v := code.(type) {
	case string, int64, bool:
		return true
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	return false
}

// failureIn is the error that an output is, nil if it is none: {"error": {…}},
// or as older engines have it {"object": "error", "message": …, "code": 404}. An
// object of another kind may have an error too, as a response that failed.
func failureIn(value json.RawMessage) *failure {
	if value = bytes.TrimSpace(value); len(value) == 0 || value[0] != '{' || !bytes.Contains(value, []byte("error")) {
		return nil
	}
	var read struct {
		Object  string          `json:"object"`
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Param   *string         `json:"param"`
		Code    any             `json:"code"`
	}
	if json.Unmarshal(value, &read) != nil || read.Object != "" && read.Object != "error" {
		return nil
	}
	if read.Object == "error" && len(read.Error) == 0 {
		body, _ := json.Marshal(web.OpenAIBody{Error: web.OpenAIError{Message: read.Message, Type: read.Type, Param: read.Param, Code: read.Code}})
		return &failure{statusOfError(read.Code, read.Type), body}
	}
	var inner struct {
		Type string `json:"type"`
		Code any    `json:"code"`
	}
	if len(read.Error) == 0 || read.Error[0] != '{' || json.Unmarshal(read.Error, &inner) != nil {
		return nil
	}
	return &failure{statusOfError(inner.Code, inner.Type), value}
}

// statusOfError is an error's HTTP status: its code if that is one, else what
// its type says, else 500.
func statusOfError(code any, kind string) int {
	if status := statusOfCode(code); status >= http.StatusBadRequest && status <= 599 {
		return status
	}
	kind = strings.ToLower(strings.NewReplacer("_", "", " ", "").Replace(kind))
	for _, row := range []struct {
		part   string
		status int
	}{
		{"badrequest", http.StatusBadRequest},
		{"invalidrequest", http.StatusBadRequest},
		{"notfound", http.StatusNotFound},
		{"authentication", http.StatusUnauthorized},
		{"permission", http.StatusForbidden},
		{"ratelimit", http.StatusTooManyRequests},
		{"overloaded", http.StatusServiceUnavailable},
		{"unavailable", http.StatusServiceUnavailable},
		{"timeout", http.StatusGatewayTimeout},
	} {
		if strings.Contains(kind, row.part) {
			return row.status
		}
	}
	return http.StatusInternalServerError
}

// statusOfCode reads a code, which is a number or its digits; 0 is any other.
func statusOfCode(code any) int {
	switch v := code.(type) {
	case int64:
		return int(min(max(v, 0), 1000))
	case float64:
		if v == math.Trunc(v) && v >= 0 && v < 1000 {
			return int(v)
		}
	case string:
		status, _ := strconv.Atoi(v)
		return status
	}
	return 0
}
