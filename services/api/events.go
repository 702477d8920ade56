package api

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/web"
)

// eventsOfEndpoint tells what happens to an endpoint's jobs.
func (s *Service) eventsOfEndpoint(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return err
	}
	return s.tellEvents(ctx, c, e, "")
}

// eventsOfJob tells what happens to one job. It need not be readable any more.
func (s *Service) eventsOfJob(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
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
	_, err = s.queue.Status(ctx, e, id) // one that waits has no event yet
	return err
}

// submittedSince tells the jobs of an endpoint from those of an earlier one of
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
