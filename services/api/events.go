package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// eventsOfEndpoint answers with the events of an endpoint's jobs.
func (s *Service) eventsOfEndpoint(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint) error {
	return s.answerEvents(ctx, c, e, events.Watching{})
}

// eventsOfAll answers with the events of all endpoints that the key may read.
func (s *Service) eventsOfAll(ctx context.Context, c *fiber.Ctx) error {
	if _, err := s.readable(ctx, c); err != nil {
		return err
	}
	return s.answerEvents(ctx, c, endpoint.Endpoint{}, events.Watching{})
}

// readableOf returns those of the events that the key may read, of endpoints that exist.
func (s *Service) readableOf(ctx context.Context, key *registry.Key, list []events.Event) ([]events.Event, error) {
	found := map[string]endpoint.Endpoint{}
	var readable []events.Event
	for _, ev := range list {
		if !key.Allows(ev.Endpoint, registry.Read) {
			continue
		}
		e, looked := found[ev.Endpoint]
		if !looked {
			var err error
			if e, err = s.registry.Endpoints.Load(ctx, ev.Endpoint); err != nil && !errors.Is(err, endpoint.ErrNotFound) {
				return nil, err
			}
			found[ev.Endpoint] = e
		}
		if e.ID != "" && !ev.Submitted.Before(submittedSince(e)) {
			readable = append(readable, ev)
		}
	}
	return readable, nil
}

// eventsOfJob answers with the events of one job, which may be gone.
func (s *Service) eventsOfJob(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID) error {
	w := events.Watching{Job: id}
	if err := s.locate(ctx, e, &w); err != nil {
		return err
	}
	return s.answerEvents(ctx, c, e, w)
}

// idSlack is how much the clock that made a job's id may differ from the server's, where the
// events or lines of that job are looked for. listSlack bounds it for a list by the beginning
// of an id, which reads all jobs of that time.
const idSlack, listSlack = time.Minute, 5 * time.Second

// locate says where in the log the events of w.Job are. It returns job.ErrNotFound
// for a job of which there is no event and that cannot be read either.
func (s *Service) locate(ctx context.Context, e endpoint.Endpoint, w *events.Watching) error {
	j, err := s.queue.Current(ctx, e, w.Job)
	if errors.Is(err, job.ErrNotFound) {
		return s.locateGone(ctx, e, w)
	}
	if err != nil {
		return err
	}
	w.NotBefore = j.Submitted.Add(-events.ClockSlack)
	if j.Attempt == 1 && j.Run == 1 { // the first event is written with the start
		w.NotBefore = j.Started.Add(-events.ClockSlack)
	}
	if j.Status.Terminal() {
		w.Attempt = j.Attempt
	}
	return nil
}

// locateGone looks for the first event of a job that cannot be read any more.
func (s *Service) locateGone(ctx context.Context, e endpoint.Endpoint, w *events.Watching) error {
	found := false
	err := s.events.ScanSince(ctx, e.ID, w.Job, madeSince(e, w.Job), func(entry events.Entry) bool {
		found = slices.ContainsFunc(entry.Events, func(ev events.Event) bool {
			return ev.Job == w.Job && !ev.Submitted.Before(submittedSince(e))
		})
		w.NotBefore = entry.Written
		return !found
	})
	if err == nil && !found {
		return job.ErrNotFound
	}
	return err
}

// madeSince is an instant before which no event of the job was written.
func madeSince(e endpoint.Endpoint, id job.ID) time.Time {
	since := submittedSince(e)
	if made, ok := id.Made(); ok && made.Add(-idSlack).After(since) {
		since = made.Add(-idSlack)
	}
	return since
}

// submittedSince separates the jobs of an endpoint from those of an earlier one of
// the same id, as record.Location.OfEarlier does: by the server's time, in milliseconds.
func submittedSince(e endpoint.Endpoint) time.Time { return e.Created.Truncate(time.Millisecond) }

// answerEvents answers with the events of w.Job, or of all jobs.
func (s *Service) answerEvents(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, w events.Watching) error {
	if err := readWatching(c, s.queue.Now(), &w); err != nil {
		return err
	}
	w.Endpoint, w.Submitted = e.ID, submittedSince(e)
	watched, err := s.tail.Watch(ctx, w)
	if err != nil {
		return err
	}
	list := &eventList{s: s, watch: watched}
	if e.ID == "" {
		list.key = web.Caller(c)
	}
	s.sendList(c, list, watched.Close)
	return nil
}

// readWatching reads which events the request wants.
func readWatching(c *fiber.Ctx, now time.Time, w *events.Watching) (err error) {
	if w.Kinds, err = choices(c, "type", events.Kinds(), events.Kind.Type); err != nil {
		return err
	}
	if w.Since, err = web.Since(c.Query("since"), now); err != nil {
		return err
	}
	at, err := followingOf(c, "an event", events.ParseCursor)
	w.After, w.Resume, w.Once = at.after, at.resume, at.once
	return err
}

// eventList is the events of a watch, as they are sent.
type eventList struct {
	s     *Service
	key   *registry.Key // decides which are sent of all endpoints; nil for those of one endpoint
	watch *events.Watch
}

// place implements followedList.
func (l *eventList) place() string { return events.Cursor(l.watch.After()) }

// read implements followedList. The name of an event is its type, so that browsers can
// listen to some.
func (l *eventList) read(ctx context.Context, wait time.Duration, to *follower) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	some, err := l.watch.Next(ctx)
	if err != nil {
		return err
	}
	if l.key != nil {
		if some, err = l.s.readableOf(ctx, l.key, some); err != nil {
			return fmt.Errorf("%w: %w", errPassed, err)
		}
	}
	for _, e := range some {
		data, err := json.Marshal(e.Cloud())
		if err != nil {
			return fmt.Errorf("encode event %s: %w", e.ID(), err)
		}
		to.add(events.Cursor(e.Seq), e.Kind.Type(), data)
	}
	return nil
}
