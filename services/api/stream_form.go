package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/web"
)

// form is how a stream is told.
type form string

// The forms (product.md 2). formAuto is none: other signs decide.
const (
	formAuto   form = ""
	formObject form = "object" // {"status":…,"stream":[…]}, which the published clients need
	formArray  form = "array"  // the chunks, as the contract has it
	formEvents form = "sse"    // server-sent events
)

// statedForm is the form that the client asks for in words, or formAuto.
func statedForm(format, accept string) (form, error) {
	switch f := form(format); f {
	case formObject, formArray, formEvents:
		return f, nil
	case formAuto:
	default:
		return "", web.Errorf(web.InvalidRequest, "format is invalid; must be object, array or sse")
	}
	for part := range strings.SplitSeq(accept, ",") {
		if mediaType(part) == "text/event-stream" {
			return formEvents, nil
		}
	}
	return formAuto, nil
}

// impliedForm is the form that the endpoint's setting decides, or else what
// tells a published client: they send a content type even without a body.
func impliedForm(setting, method, contentType, agent string) form {
	switch {
	case form(setting) == formArray, form(setting) == formObject:
		return form(setting)
	case method == http.MethodPost, mediaType(contentType) == "application/json", strings.HasPrefix(agent, "RunPod-"):
		return formObject
	}
	return formArray
}

// mediaType is a header's media type without its parameters.
func mediaType(value string) string {
	kind, _, _ := strings.Cut(value, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// streamBody is an answer with chunks, verbatim and on one line. A job with more
// of them is shown as IN_PROGRESS: clients stop at the first terminal status.
func streamBody(f form, chunks []queue.Chunk, j *job.Job, more bool) []byte {
	size := 64 + len(j.Error)
	for _, c := range chunks {
		size += len(c.Data) + 1
	}
	b := make([]byte, 0, size)
	if f == formObject {
		status := j.Status
		if more {
			status = job.InProgress
		}
		b = append(append(append(b, `{"status":"`...), status...), `","stream":`...)
	}
	b = append(b, '[')
	for i, c := range chunks {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, c.Data...)
	}
	b = append(b, ']')
	if f != formObject {
		return b
	}
	if text := streamError(j); text != "" && !more {
		quoted, _ := json.Marshal(text) // a string is always JSON
		b = append(append(b, `,"error":`...), quoted...)
	}
	return append(b, '}')
}

// streamError is why the job failed, "" unless it did.
func streamError(j *job.Job) string {
	if j.Status == job.Failed || j.Status == job.TimedOut {
		return j.Error
	}
	return ""
}
