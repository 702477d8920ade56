package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"flightline/shared/job"
	"flightline/shared/queue"
)

// view is the body of a webhook: the job as /status shows it, and what it was
// asked for. Times are milliseconds.
type view struct {
	job           *job.Job
	input, output json.RawMessage

	// omitted says what was left out of a body that would be too large, and
	// outputURL where the output can be read for as long as it is kept.
	omitted, outputURL string
}

// bodyOf is the body, with a link instead of the output if it would be larger
// than most, and without the input if that does not do.
func bodyOf(c *queue.Completion, most int, public string) ([]byte, error) {
	j := &c.Job
	v := view{job: j, input: c.Input, output: j.Output}
	body, err := v.encode()
	if err != nil || len(body) <= most {
		return body, err
	}
	size := len(body)
	var left []string
	if len(v.output) > 0 {
		left = append(left, "output")
		v.output = nil
		v.outputURL = strings.TrimSuffix(public, "/") + "/v2/" + url.PathEscape(j.Endpoint) + "/status/" + url.PathEscape(string(j.ID))
	}
	if size-len(j.Output) > most {
		left = append(left, "input")
		v.input = nil
	}
	v.omitted = fmt.Sprintf("%s: the body would have %d bytes, more than %d", strings.Join(left, ", "), size, most)
	return v.encode()
}

// bodyRest is more than a body has besides its texts.
const bodyRest = 256

// encode writes the view as encoding/json would, HTML's characters left as
// they are.
func (v *view) encode() ([]byte, error) {
	j := v.job
	f := fields{b: make([]byte, 0, bodyRest+len(v.input)+len(v.output)+len(j.Error)+len(j.Webhook)+len(v.omitted)+len(v.outputURL))}
	f.number("delayTime", j.Delay().Milliseconds())
	f.text("error", j.Error, false)
	f.number("executionTime", j.Execution(j.Finished).Milliseconds())
	f.text("id", string(j.ID), true)
	f.raw("input", v.input)
	f.raw("output", v.output)
	f.number("retries", int64(j.Retries()))
	f.text("status", string(j.Status), true)
	f.text("webhook", j.Webhook, true)
	f.text("workerId", j.Worker, false)
	f.text("omitted", v.omitted, false)
	f.text("outputUrl", v.outputURL, false)
	if f.err != nil {
		return nil, fmt.Errorf("encode the webhook of job %s: %w", j.ID, f.err)
	}
	return append(f.b, '}'), nil
}

// fields are those of a JSON object so far.
type fields struct {
	b   []byte
	err error
}

func (f *fields) key(name string) {
	lead := byte(',')
	if len(f.b) == 0 {
		lead = '{'
	}
	f.b = append(append(append(f.b, lead, '"'), name...), '"', ':')
}

func (f *fields) number(key string, n int64) {
	f.key(key)
	f.b = strconv.AppendInt(f.b, n, 10)
}

// text leaves out an empty one unless it is always there.
func (f *fields) text(key, text string, always bool) {
	if text == "" && !always {
		return
	}
	f.key(key)
	if plain(text) {
		f.b = append(append(append(f.b, '"'), text...), '"')
		return
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	f.fail(encoder.Encode(text))
	f.b = append(f.b, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

// plain holds for a text that stands in JSON as it is.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// raw is JSON, without the space between its parts.
func (f *fields) raw(key string, value json.RawMessage) {
	if len(value) == 0 {
		return
	}
	f.key(key)
	if !bytes.ContainsAny(value, " \t\r\n") {
		f.b = append(f.b, value...)
		return
	}
	b := bytes.NewBuffer(f.b)
	f.fail(json.Compact(b, value))
	f.b = b.Bytes()
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}
