package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/retry"
	"flightline/shared/web"
)

// eventsOfEndpoint answers with the events of an endpoint's jobs.
func (s *Service) eventsOfEndpoint(c *fiber.Ctx) error {
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return err
	}
	return s.tellEvents(ctx, c, e, "")
}

// eventsOfJob answers with the events of one job, which may be gone.
func (s *Service) eventsOfJob(c *fiber.Ctx) error {
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	e, id, err := s.job(ctx, c)
	if err != nil {
		return err
	}
	if s.events != nil {
		if err := s.known(ctx, e, id); err != nil {
			return err
		}
	}
	return s.tellEvents(ctx, c, e, id)
}

// known returns job.ErrNotFound for a job of which there is no event and that
// cannot be read either.
func (s *Service) known(ctx context.Context, e endpoint.Endpoint, id job.ID) error {
	last, err := s.events.Last(ctx, e.ID, id)
	switch {
	case errors.Is(err, events.ErrNotFound):
	case err != nil:
		return err
	case !last.Submitted.Before(submittedSince(e)):
		return nil
	}
	_, err = s.queue.Status(ctx, e, id) // a waiting job has no event yet
	return err
}

// submittedSince separates the jobs of an endpoint from those of an earlier one of
// the same id, as queue.OfEarlier does: by the server's time, in milliseconds.
func submittedSince(e endpoint.Endpoint) time.Time { return e.Created.Truncate(time.Millisecond) }

// tellEvents answers with the events of a job, or of all if id is "".
func (s *Service) tellEvents(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID) error {
	w, err := watchingOf(c, s.queue.Now())
	if err != nil {
		return err
	}
	if s.tail == nil {
		return web.Errorf(web.NotFound, "this server has no log of events")
	}
	w.Endpoint, w.Job, w.Submitted = e.ID, id, submittedSince(e)
	watch, err := s.tail.Watch(ctx, w)
	if err != nil {
		return err
	}
	s.sendEvents(c, watch, e.ID)
	return nil
}

// watchingOf reads what the request wants to hear.
func watchingOf(c *fiber.Ctx, now time.Time) (w events.Watching, err error) {
	if w.Kinds, err = kindsOf(c.Query("type")); err != nil {
		return w, err
	}
	if w.Since, err = web.Since(c.Query("since"), now); err != nil {
		return w, err
	}
	switch c.Query("follow") {
	case "", "true":
	case "false":
		w.Once = true
	default:
		return w, web.Errorf(web.InvalidRequest, "follow is invalid; must be true or false")
	}
	text, name := c.Query("cursor"), "cursor"
	w.Resume = c.Context().QueryArgs().Has(name)
	if id := c.Get(headerLastEventID); id != "" { // the newer of the two: a client that came back
		text, name, w.Resume = id, headerLastEventID, true
	}
	if !w.Resume {
		return w, nil
	}
	if w.After, err = strconv.ParseUint(strings.TrimSpace(text), 10, 64); err != nil {
		return w, web.Errorf(web.InvalidRequest, "%s is invalid; must be the id of an event, or 0", name)
	}
	return w, nil
}

// kindsOf reads a list of types, separated by commas.
func kindsOf(list string) ([]events.Kind, error) {
	if list == "" {
		return nil, nil
	}
	var wanted []events.Kind
	for name := range strings.SplitSeq(list, ",") {
		kind := events.KindOfType(name)
		if kind == "" {
			var names []string
			for _, k := range events.Kinds() {
				names = append(names, k.Type())
			}
			return nil, web.Errorf(web.InvalidRequest, "type is invalid; must be one or several, separated by commas, of %s", strings.Join(names, ", "))
		}
		wanted = append(wanted, kind)
	}
	return wanted, nil
}

// subscriptionHold is how long events are told on one connection. Then it ends,
// and the client comes back with its Last-Event-ID.
const subscriptionHold = time.Hour

// subscription is one connection on which events are told.
type subscription struct {
	s        *Service
	endpoint string
	watch    *events.Watch
	held     context.Context //nolint:containedctx // the writer, which runs after the handler, is given none
	text     bytes.Buffer    // what is being written
	begun    bool
	over     bool // the end is written
}

// sendEvents answers with the events of the watch, which it closes.
func (s *Service) sendEvents(c *fiber.Ctx, watch *events.Watch, endpoint string) {
	held, release := web.LongPoll(c, subscriptionHold)
	v := &subscription{s: s, endpoint: endpoint, watch: watch, held: held}
	sendAsItComes(c, v.next, func() {
		watch.Close()
		release()
	})
}

// next returns the next events, or a comment when there were none for a while.
// An id without data moves the client's Last-Event-ID on, so that it misses
// nothing if it comes back before it has heard of an event, and skips what it
// does not want.
func (v *subscription) next() ([]byte, error) {
	if v.over {
		return nil, io.EOF
	}
	if v.text.Cap() > keptBuffer {
		v.text = bytes.Buffer{}
	}
	v.text.Reset() // it was written
	if !v.begun {
		v.begun = true
		fmt.Fprintf(&v.text, "retry: %d\nid: %d\n\n", comeBack.Milliseconds(), v.watch.After())
		return v.text.Bytes(), nil
	}
	ctx, cancel := context.WithTimeout(v.held, keepAlive)
	defer cancel()
	list, err := v.more(ctx)
	switch {
	case errors.Is(context.Cause(v.held), web.ErrGone):
		return nil, web.ErrGone
	case errors.Is(err, io.EOF):
		v.over = true
		v.text.WriteString("event: end\ndata: {}\n\n")
	case err != nil:
		return nil, err
	case len(list) > 0:
		if err := v.tell(list); err != nil {
			return nil, err
		}
	case v.held.Err() != nil:
		return nil, io.EOF // the server stops, or the hour is over; the client comes back
	default:
		fmt.Fprintf(&v.text, ": keep-alive\nid: %d\n\n", v.watch.After())
	}
	return v.text.Bytes(), nil
}

// eventsRetryDelay is the pause before the log is read again after it was away.
const eventsRetryDelay = 500 * time.Millisecond

// more waits for events and sits out an outage.
func (v *subscription) more(ctx context.Context) ([]events.Event, error) {
	for {
		list, err := v.watch.Next(ctx)
		if err == nil || errors.Is(err, io.EOF) {
			return list, err
		}
		if !errors.Is(err, bus.ErrUnavailable) {
			v.s.log.ErrorContext(ctx, "events broken off", "endpoint", v.endpoint, "err", err)
			return nil, err
		}
		if retry.Sleep(ctx, eventsRetryDelay) != nil {
			return nil, nil //nolint:nilerr // the reader has left
		}
	}
}

// tell writes events. The name is the type, so that browsers can listen to some.
func (v *subscription) tell(list []events.Event) error {
	for _, e := range list {
		data, err := json.Marshal(e.Cloud())
		if err != nil {
			return fmt.Errorf("encode event %s: %w", e.ID(), err)
		}
		v.text.WriteString("id: ")
		v.text.Write(strconv.AppendUint(v.text.AvailableBuffer(), e.Seq, 10))
		v.text.WriteString("\nevent: ")
		v.text.WriteString(e.Kind.Type())
		v.text.WriteString("\ndata: ")
		v.text.Write(data)
		v.text.WriteString("\n\n")
	}
	return nil
}
