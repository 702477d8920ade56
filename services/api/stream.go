package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/chunks"
	"flightline/shared/job"
	"flightline/shared/web"
)

const (
	// streamHold is how long an answer is held for which no wait was asked: the
	// Python client gives up after 10 s (docs/design/runpod-clients.md#stream).
	streamHold = 9 * time.Second
	// maxStreamMessages bounds the messages of one answer, or of one turn of an event
	// stream; each has one chunk or more. The queue bounds their bytes.
	maxStreamMessages = 1000
	// cancelledGrace is how long after its end a cancelled job's stream answers
	// those who do not count themselves. The Python client does not know that a
	// CANCELLED job is over; only an error ends its loop (docs/design/runpod-clients.md#stream).
	cancelledGrace = 30 * time.Second
)

// headerCursor carries the cursor after the chunks of an answer.
const headerCursor = "X-Stream-Cursor"

// streamQuery is how a client wants to read a stream.
type streamQuery struct {
	form  form
	wait  time.Duration
	after uint64 // the cursor that it gave
	own   bool   // it gave one; else the server's holds
}

func (s *Service) stream(c *fiber.Ctx) error {
	ask, err := streamQueryOf(c)
	if err != nil {
		return err
	}
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	e, id, err := s.job(ctx, c)
	if err != nil {
		return err
	}
	if ask.form == formAuto {
		ask.form = impliedForm(e.StreamFormat, s.cfg.StreamFormat, c.Method(), c.Get(fiber.HeaderContentType), c.Get(fiber.HeaderUserAgent))
	}
	follow, err := chunks.Follow(s.queue, e, id)
	if err != nil {
		return err
	}
	if ask.form == formEvents {
		return s.streamEvents(ctx, c, follow, ask)
	}
	defer follow.Close()
	cursor := chunks.Cursor{Seq: ask.after}
	if !ask.own {
		if cursor, err = chunks.ReadCursor(ctx, s.queue.Bus(), e.ID, id); err != nil {
			return err
		}
	}
	return s.streamBatch(c, follow, ask, cursor)
}

// streamBatch answers with the chunks behind the cursor, once there are some or
// the job is over, or with none when the wait is.
func (s *Service) streamBatch(c *fiber.Ctx, follow *chunks.Follower, ask streamQuery, cursor chunks.Cursor) error {
	held, release := web.LongPoll(c, ask.wait)
	defer release()
	chunks, j, more, err := follow.Next(held, cursor.Seq, maxStreamMessages)
	switch {
	case errors.Is(context.Cause(held), web.ErrGone):
		return nil
	case err != nil:
		return err
	case !ask.own && len(chunks) == 0 && cancelledLongAgo(j, s.queue.Now()):
		return web.Errorf(web.JobNotFound, "the job was cancelled, and its stream is over")
	}
	last := cursor.Seq
	if len(chunks) > 0 {
		last = chunks[len(chunks)-1].Seq
	}
	c.Set(headerCursor, strconv.FormatUint(last, 10))
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	body := streamBody(ask.form, chunks, j, more)
	if ask.own || len(chunks) == 0 {
		return c.Send(body)
	}
	s.sendAndMove(c, body, j, cursor, last)
	return nil
}

// cancelledLongAgo reports whether a client that still asks does not know that a
// CANCELLED job is over.
func cancelledLongAgo(j *job.Job, now time.Time) bool {
	return j.Status == job.Cancelled && !now.Before(j.Finished.Add(cancelledGrace))
}

// moveCursorTimeout bounds the writing of the cursor, while the client waits for the
// last bytes of its answer.
const moveCursorTimeout = 3 * time.Second

// sendAndMove answers with the body, and moves the cursor when all of it was
// written to the socket but its last byte: so the next call of a client that
// has the answer, even a client that reads no further than the JSON goes, finds the
// cursor moved; and an answer that was lost, or cut off since the cursor could
// not be moved, is sent again.
func (s *Service) sendAndMove(c *fiber.Ctx, body []byte, j *job.Job, cursor chunks.Cursor, last uint64) {
	end := len(body) - 1
	move := func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), moveCursorTimeout)
		defer cancel()
		if err := chunks.MoveCursor(ctx, s.queue.Bus(), j, cursor, last); err != nil {
			s.log.WarnContext(ctx, "stream cursor not moved, its answer is repeated", "endpoint", j.Endpoint, "job", j.ID, "err", err)
			return nil, err
		}
		return body[end:], nil
	}
	step := 0
	next := func() ([]byte, error) {
		switch step++; step {
		case 1:
			return body[:end], nil
		case 2:
			return move()
		}
		return nil, io.EOF
	}
	web.Stream(c, next, releaseAtEnd(c))
}

// streamQueryOf reads what the request says about the stream.
func streamQueryOf(c *fiber.Ctx) (streamQuery, error) {
	var ask streamQuery
	var err error
	if ask.form, err = statedForm(c.Query("format"), c.Get(fiber.HeaderAccept)); err != nil {
		return ask, err
	}
	if ask.wait, err = millis(c, "wait", streamHold, job.MinWait, job.MaxWait); err != nil {
		return ask, err
	}
	text, name := c.Query("cursor"), "cursor"
	ask.own = c.Context().QueryArgs().Has(name)
	if id := c.Get(headerLastEventID); ask.form == formEvents && id != "" { // the newer of the two: a client that came back
		text, name, ask.own = id, headerLastEventID, true
	}
	if !ask.own {
		return ask, nil
	}
	if ask.after, err = strconv.ParseUint(strings.TrimSpace(text), 10, 63); err != nil {
		return ask, web.Errorf(web.InvalidRequest, "%s is invalid; must be a cursor of an earlier answer, or 0, got %.50q", name, text)
	}
	return ask, nil
}

const (
	// headerLastEventID is where a client that lost its connection says how far
	// it came (WHATWG HTML, "Server-sent events").
	headerLastEventID = "Last-Event-ID"
	// keepAlive is the longest silence of an event stream; proxies and clients
	// take a longer one for an end (docs/design/product.md#methods-and-forms).
	keepAlive = 10 * time.Second
	// eventsHold is longer than any job lives.
	eventsHold = job.MaxTTL + 24*time.Hour
	// reconnectDelay is how long a client should wait before it connects again.
	reconnectDelay = time.Second
	// maxKeptBuffer is how much memory an event stream keeps between its chunks, in bytes.
	maxKeptBuffer = 64 << 10
)

// eventStream is one event stream while it is written.
type eventStream struct {
	s      *Service
	at     string // the endpoint
	id     job.ID
	follow *chunks.Follower
	held   context.Context //nolint:containedctx // the writer, which runs after the handler, is given none
	after  uint64
	text   bytes.Buffer // what is being written
	begun  bool         // what the first look brought is written
	over   bool         // the end is written, too
}

// streamEvents answers with an event for each chunk as it comes, and one for
// the job's end. What can be refused is refused before it begins.
func (s *Service) streamEvents(ctx context.Context, c *fiber.Ctx, follow *chunks.Follower, ask streamQuery) error {
	chunks, j, more, err := follow.Read(ctx, ask.after, maxStreamMessages)
	if err != nil {
		follow.Close()
		return err
	}
	held, release := web.LongPoll(c, eventsHold)
	v := &eventStream{s: s, at: j.Endpoint, id: j.ID, follow: follow, held: held, after: ask.after}
	fmt.Fprintf(&v.text, "retry: %d\n\n", reconnectDelay.Milliseconds())
	v.writeEvents(chunks, j, more)
	sendAsItComes(c, v.next, func() {
		follow.Close()
		release()
	})
	return nil
}

// sendAsItComes answers with the server-sent events that next brings, and calls
// over when nobody reads them any more. The request counts as one until then.
func sendAsItComes(c *fiber.Ctx, next func() ([]byte, error), over func()) {
	c.Set(fiber.HeaderContentType, "text/event-stream")
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set("X-Accel-Buffering", "no")
	leave := releaseAtEnd(c)
	web.Stream(c, next, func() {
		over()
		leave()
	})
}

// next returns the next events, or a comment when there were none for a while.
func (v *eventStream) next() ([]byte, error) {
	if !v.begun {
		v.begun = true
		return v.text.Bytes(), nil
	}
	if v.over {
		return nil, io.EOF
	}
	if v.text.Cap() > maxKeptBuffer {
		v.text = bytes.Buffer{}
	}
	v.text.Reset() // it was written
	ctx, cancel := context.WithTimeout(v.held, keepAlive)
	defer cancel()
	chunks, j, more, err := v.follow.Next(ctx, v.after, maxStreamMessages)
	switch {
	case errors.Is(context.Cause(v.held), web.ErrGone):
		return nil, web.ErrGone
	case v.held.Err() != nil:
		return nil, io.EOF // the server stops; the client comes back elsewhere
	case errors.Is(err, job.ErrNotFound):
		v.end("gone", api.StreamEnd{ID: v.id})
	case err != nil:
		v.s.log.ErrorContext(ctx, "stream broken off", "endpoint", v.at, "job", v.id, "err", err)
		return nil, err
	case len(chunks) == 0 && !j.Status.Terminal():
		v.text.WriteString(": keep-alive\n\n")
	default:
		v.writeEvents(chunks, j, more)
	}
	return v.text.Bytes(), nil
}

// writeEvents writes the events of a look.
func (v *eventStream) writeEvents(chunks []chunks.Chunk, j *job.Job, more bool) {
	for _, c := range chunks {
		v.text.WriteString("id: ")
		v.text.Write(strconv.AppendUint(v.text.AvailableBuffer(), c.Seq, 10))
		v.text.WriteString("\ndata: ")
		v.text.Write(c.Data)
		v.text.WriteString("\n\n")
		v.after = c.Seq
	}
	if j.Status.Terminal() && !more {
		v.end("status", api.StreamEnd{ID: j.ID, Status: j.Status, Error: streamError(j)})
	}
}

// end writes the last event.
func (v *eventStream) end(name string, data api.StreamEnd) {
	text, _ := json.Marshal(data) // strings are always JSON
	fmt.Fprintf(&v.text, "event: %s\ndata: %s\n\n", name, text)
	v.over = true
}

// form is the form of a stream's answer.
type form string

// The forms (docs/design/product.md#methods-and-forms). formAuto is none: other signs decide.
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
		return "", web.Errorf(web.InvalidRequest, "format is invalid; must be object, array or sse, got %.20q", format)
	}
	for part := range strings.SplitSeq(accept, ",") {
		if mediaType(part) == "text/event-stream" {
			return formEvents, nil
		}
	}
	return formAuto, nil
}

// impliedForm is the form that the endpoint's setting decides, or else what
// identifies a published client (they send a content type even without a body), or
// else the server's.
func impliedForm(setting, server, method, contentType, agent string) form {
	switch {
	case form(setting) == formArray, form(setting) == formObject:
		return form(setting)
	case method == http.MethodPost, mediaType(contentType) == "application/json", strings.HasPrefix(agent, "RunPod-"):
		return formObject
	case form(server) == formObject:
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
func streamBody(f form, chunks []chunks.Chunk, j *job.Job, more bool) []byte {
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
