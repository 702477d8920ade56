package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/web"
)

const (
	// headerLastEventID is where a client that lost its connection says how far
	// it came (WHATWG HTML, "Server-sent events").
	headerLastEventID = "Last-Event-ID"
	// keepAlive is the longest silence of an event stream; proxies and clients
	// take a longer one for an end (product.md: at least every 15 s).
	keepAlive = 10 * time.Second
	// eventsHold is longer than any job lives.
	eventsHold = job.MaxTTL + 24*time.Hour
	// comeBack is how long a client should wait before it connects again.
	comeBack = time.Second
	// keptBuffer is how much memory an event stream keeps between its chunks.
	keptBuffer = 64 << 10
)

// eventStream is one event stream while it is written.
type eventStream struct {
	s      *Service
	at     string // the endpoint
	id     job.ID
	follow *queue.Follow
	held   context.Context //nolint:containedctx // the writer, which runs after the handler, is given none
	after  uint64
	text   bytes.Buffer // what is being written
	begun  bool         // what the first look brought is written
	over   bool         // the end is told, too
}

// streamEnd says how a stream ended.
type streamEnd struct {
	ID     job.ID     `json:"id"`
	Status job.Status `json:"status,omitempty"` // "" means that the job is gone
	Error  string     `json:"error,omitempty"`
}

// streamEvents answers with an event for each chunk as it comes, and one for
// the job's end. What can be refused is refused before it begins.
func (s *Service) streamEvents(ctx context.Context, c *fiber.Ctx, follow *queue.Follow, ask streamQuery) error {
	chunks, j, more, err := follow.Look(ctx, ask.after, streamChunks)
	if err != nil {
		follow.Close()
		return err
	}
	held, release := web.Hold(c, eventsHold)
	v := &eventStream{s: s, at: j.Endpoint, id: j.ID, follow: follow, held: held, after: ask.after}
	fmt.Fprintf(&v.text, "retry: %d\n\n", comeBack.Milliseconds())
	v.tell(chunks, j, more)
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
	if v.text.Cap() > keptBuffer {
		v.text = bytes.Buffer{}
	}
	v.text.Reset() // it was written
	ctx, cancel := context.WithTimeout(v.held, keepAlive)
	defer cancel()
	chunks, j, more, err := v.follow.Next(ctx, v.after, streamChunks)
	switch {
	case errors.Is(context.Cause(v.held), web.ErrGone):
		return nil, web.ErrGone
	case v.held.Err() != nil:
		return nil, io.EOF // the server stops; the client comes back elsewhere
	case errors.Is(err, job.ErrNotFound):
		v.end("gone", streamEnd{ID: v.id})
	case err != nil:
		v.s.log.ErrorContext(ctx, "stream broken off", "endpoint", v.at, "job", v.id, "err", err)
		return nil, err
	case len(chunks) == 0 && !j.Status.Terminal():
		v.text.WriteString(": keep-alive\n\n")
	default:
		v.tell(chunks, j, more)
	}
	return v.text.Bytes(), nil
}

// tell writes the events of a look.
func (v *eventStream) tell(chunks []queue.Chunk, j *job.Job, more bool) {
	for _, c := range chunks {
		v.text.WriteString("id: ")
		v.text.Write(strconv.AppendUint(v.text.AvailableBuffer(), c.Seq, 10))
		v.text.WriteString("\ndata: ")
		v.text.Write(c.Data)
		v.text.WriteString("\n\n")
		v.after = c.Seq
	}
	if j.Status.Terminal() && !more {
		v.end("status", streamEnd{ID: j.ID, Status: j.Status, Error: streamError(j)})
	}
}

// end writes the last event.
func (v *eventStream) end(name string, data streamEnd) {
	text, _ := json.Marshal(data) // strings are always JSON
	fmt.Fprintf(&v.text, "event: %s\ndata: %s\n\n", name, text)
	v.over = true
}
