package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/web"
)

const (
	// shownOutput is how much of an output a page shows, wholeOutput how much the page of
	// the output alone.
	shownOutput, wholeOutput = 8 << 10, 1 << 20
	// maxIndented bounds a text that is indented.
	maxIndented = 16 << 20
	// maxEvents bounds the events of a job that are read.
	maxEvents = 500
)

// jobData is a job with all that is known of it.
type jobData struct {
	Endpoint string
	ID       job.ID
	Job      *client.Job // nil once it is gone
	Explain  *client.Explanation
	Events   []client.Event
	// Timeline is what it did when, nil without events.
	Timeline   *timeline
	Deliveries []client.WebhookDelivery
	Output     text
	Media      []media
	Snippets   []snippet
	// TraceLink is where the job's trace is shown, "" without a trace or the setting.
	TraceLink string
	// CanCancel and CanRetry: its status and the key allow it.
	CanCancel, CanRetry bool
}

var validTrace = regexp.MustCompile(`^[0-9a-f]{32}$`)

// traceLink is the address of a trace, "" without one.
func traceLink(template, id string) string {
	if template == "" || !validTrace.MatchString(id) {
		return ""
	}
	return strings.ReplaceAll(template, "{trace}", id)
}

// Status is the job's, or that of its last event.
func (d *jobData) Status() job.Status {
	if d.Job != nil {
		return d.Job.Status
	}
	if len(d.Events) > 0 {
		return d.Events[len(d.Events)-1].Status
	}
	return ""
}

// Over reports whether nothing more is to be expected.
func (d *jobData) Over() bool { return d.Job == nil || d.Job.Status.Terminal() }

// text is a text that may be cut.
type text struct {
	Shown string
	Bytes int
	Cut   bool
}

// textOf is JSON for people: at most most bytes of it, and indented unless that takes more than
// maxIndented.
func textOf(raw json.RawMessage, most int) text {
	t := text{Bytes: len(raw)}
	pretty := raw
	if len(raw) <= wholeOutput && indentedBytes(raw) <= maxIndented {
		var b bytes.Buffer
		if json.Indent(&b, raw, "", "  ") == nil {
			pretty = b.Bytes()
		}
	}
	t.Shown, t.Cut = cut(most, string(pretty)), len(pretty) > most
	return t
}

// indentedBytes is how long JSON is once it is indented, at most. A deeply nested value takes
// far more than its own bytes.
func indentedBytes(raw json.RawMessage) int {
	size, depth, quoted := len(raw), 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '[' || c == '{'):
			depth++
			size += 2 * (1 + 2*depth) // behind it and before its end
		case !quoted && (c == ']' || c == '}'):
			depth--
		case !quoted && (c == ',' || c == ':'):
			size += 1 + 2*depth
		}
	}
	return size
}

func loadJob(v *visit) (any, error) { return jobOf(v, job.ID(v.param("id"))) }

// jobOf reads a job, or what the log knows of it once it is gone.
func jobOf(v *visit, id job.ID) (*jobData, error) {
	d := &jobData{Endpoint: v.param("endpoint"), ID: id}
	v.follow(d.Endpoint)
	found, err := v.api.Status(v.ctx, d.Endpoint, id)
	if err != nil && !client.IsNotFound(err) {
		return nil, err
	}
	missing := err
	if err == nil {
		d.Job = found
	}
	for e, err := range v.api.Events(d.Endpoint, client.EventsOptions{Job: id, After: "0", Once: true}).All(v.ctx) {
		if err != nil {
			return nil, err
		}
		if d.Events = append(d.Events, e); len(d.Events) >= maxEvents {
			break
		}
	}
	if d.Job == nil && len(d.Events) == 0 {
		return nil, missing
	}
	if v.May("control", "") {
		page, err := v.control.Webhooks(d.Endpoint).Deliveries(v.ctx, client.WebhookQuery{Job: id})
		if err == nil {
			d.Deliveries = page.Deliveries
		}
	}
	d.Timeline = timelineOf(d.Events, d.Deliveries, d.Over(), time.Now())
	if d.Job == nil {
		return d, nil
	}
	if x, err := v.api.Explain(v.ctx, d.Endpoint, id); err == nil { // it may have gone meanwhile
		d.Explain, d.TraceLink = x, traceLink(v.s.cfg.TraceURL, x.TraceID)
		d.Timeline.addStart(x.WorkerID, x.ColdStart)
	}
	d.Output, d.Media = textOf(d.Job.Output, shownOutput), mediaIn(d.Job.Output)
	d.Snippets = snippetsOf(d.Endpoint, exampleJob)
	may := v.May("submit", d.Endpoint)
	d.CanCancel, d.CanRetry = may && !d.Job.Status.Terminal(), may && d.Job.Status.Retryable()
	return d, nil
}

// jobLog is what workers printed while they had a job, of the lines that name it.
type jobLog struct {
	Endpoint string
	ID       job.ID
	Lines    []client.LogLine // the oldest first
}

func loadJobLog(v *visit) (any, error) {
	d := &jobLog{Endpoint: v.param("endpoint"), ID: job.ID(v.param("id"))}
	v.follow(d.Endpoint)
	var err error
	of := tailID{v.apiKey, d.Endpoint, "job:" + string(d.ID)} // no worker's id has a colon
	d.Lines, err = lastOfTail(v, v.s.lines, of, v.api.Logs(d.Endpoint, client.LogsOptions{Job: d.ID}).All)
	return d, err
}

func loadOutput(v *visit) (any, error) {
	found, err := v.api.Status(v.ctx, v.param("endpoint"), job.ID(v.param("id")))
	if err != nil {
		return nil, err
	}
	return &jobData{Endpoint: v.param("endpoint"), ID: found.ID, Job: found, Output: textOf(found.Output, wholeOutput)}, nil
}

// inputData is what a job was given.
type inputData struct {
	Endpoint string
	ID       job.ID
	Status   job.Status
	// Kept is false once nothing keeps the input.
	Kept     bool
	Input    text
	Snippets []snippet
}

// loadInput reads the input of a job; the programs with it are left out if it is long.
func loadInput(v *visit) (any, error) {
	found, err := v.api.Input(v.ctx, v.param("endpoint"), job.ID(v.param("id")))
	if err != nil {
		return nil, err
	}
	d := &inputData{Endpoint: v.param("endpoint"), ID: found.ID, Status: found.Status, Kept: found.Input != nil, Input: textOf(found.Input, wholeOutput)}
	if d.Kept && len(found.Input) <= shownOutput {
		d.Snippets = snippetsOf(d.Endpoint, string(oneLine(found.Input)))
	}
	return d, nil
}

// streamOutput answers with what a job puts out, from the beginning or behind the last event
// that the browser has, as it comes.
func (s *Service) streamOutput(c *fiber.Ctx) error {
	found, err := s.session(c)
	if err != nil {
		return err
	}
	var after uint64
	if last := c.Get("Last-Event-ID"); last != "" {
		if after, err = strconv.ParseUint(last, 10, 64); err != nil {
			return &pageError{status: http.StatusBadRequest, text: "Last-Event-ID must be the number of an event"}
		}
	}
	stream := found.api.Queue.Stream(strings.Clone(c.Params("endpoint")), job.ID(strings.Clone(c.Params("id"))), client.StreamOptions{After: after})
	held, release := web.LongPoll(c, liveHold)
	next, stop := iter.Pull2(stream.All(held))
	over := false
	c.Set(fiber.HeaderContentType, eventStream)
	web.Stream(c, func() ([]byte, error) {
		if over {
			return nil, io.EOF
		}
		chunk, err, more := next()
		if _, ended := s.sessionOf(held, found.token); errors.Is(ended, registry.ErrUnauthorized) {
			over = true
			return []byte(signedOut), nil
		}
		switch {
		case more && err == nil:
			return fmt.Appendf(nil, "id: %d\ndata: %s\n\n", chunk.Cursor, oneLine(chunk.Data)), nil
		case more && held.Err() != nil:
			return nil, io.EOF // the browser left, or comes back
		case more:
			over = true
			_, why := problem(err)
			return fmt.Appendf(nil, "event: end\ndata: %s\n\n", encoded(map[string]string{"error": why})), nil
		}
		over = true
		end := map[string]string{}
		if j := stream.End(); j != nil {
			end["status"] = string(j.Status)
		}
		return fmt.Appendf(nil, "event: end\ndata: %s\n\n", encoded(end)), nil
	}, func() {
		stop()
		release()
	})
	return nil
}

// oneLine is JSON as the data of an event.
func oneLine(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return encoded(string(raw))
	}
	return b.Bytes()
}

func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil { // of texts: never
		return []byte("{}")
	}
	return data
}

// tryData is the playground.
type tryData struct {
	Endpoint, Mode string
	// Started is the job that was begun here, nil before.
	Started *jobData
	// Unread is the id of the job that was begun here, if the key may not read it.
	Unread   string
	Snippets []snippet
	Example  string
	// InCode is what the snippets send, which the page replaces by what is in the form.
	InCode string
}

const exampleInput = "{\n  \"text\": \"hello\"\n}"

func loadTry(v *visit) (any, error) {
	d := &tryData{Endpoint: v.param("endpoint"), Mode: v.query.Get("mode"), Example: exampleInput, InCode: exampleJob}
	if d.Snippets = snippetsOf(d.Endpoint, d.InCode); d.Mode == "chat" {
		d.InCode = exampleChat
		d.Snippets = chatSnippets(d.Endpoint, d.InCode)
	}
	id := v.query.Get("job")
	if v.May("submit", d.Endpoint) && !v.May("read", d.Endpoint) {
		d.Unread = id
		return d, nil
	}
	if id == "" {
		_, err := v.api.Health(v.ctx, d.Endpoint) // is it there?
		return d, err
	}
	started, err := jobOf(v, job.ID(id))
	d.Started = started
	return d, err
}

// tryJob submits what the form says, and leads to the playground with the job.
func tryJob(v *visit) (string, error) {
	endpoint, mode := v.param("endpoint"), v.form.Get("mode")
	input := json.RawMessage(v.form.Get("input"))
	if mode == "chat" {
		input = chatInput(v.form)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(input, &object); err != nil || object == nil {
		return "", &pageError{status: http.StatusBadRequest, text: "The input must be a JSON object: " + jsonProblem(err)}
	}
	j, err := v.api.Run(v.ctx, endpoint, client.Request{Input: input, Policy: client.Policy{LowPriority: v.form.Get("low") != ""}})
	if err != nil {
		return "", err
	}
	query := url.Values{"job": {string(j.ID)}}
	if mode != "" {
		query.Set("mode", mode)
	}
	return pathOf(endpoint) + "/try?" + query.Encode(), nil
}

func jsonProblem(err error) string {
	if err == nil {
		return "got null"
	}
	return err.Error()
}

// chatInput is what /openai/v1/chat/completions would make of the form.
func chatInput(form url.Values) json.RawMessage {
	messages := []map[string]string{}
	if system := form.Get("system"); system != "" {
		messages = append(messages, map[string]string{"role": "system", "content": system})
	}
	messages = append(messages, map[string]string{"role": "user", "content": form.Get("message")})
	return encoded(map[string]any{
		"openai_route": "/v1/chat/completions",
		"openai_input": map[string]any{"model": form.Get("model"), "messages": messages, "stream": true},
	})
}
