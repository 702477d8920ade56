package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/logs"
	"flightline/shared/pod"
	"flightline/shared/web"
)

const (
	// jobPoll is how often a job is looked at whose lines are followed.
	jobPoll = time.Second
	// lateLines is how long after a job's end its lines may still come.
	lateLines = 3 * time.Second
)

// logsOfEndpoint answers with what an endpoint's workers print.
func (s *Service) logsOfEndpoint(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint) error {
	w := logs.Watching{Endpoint: e}
	if err := readLogWatching(c, s.queue.Now(), &w); err != nil {
		return err
	}
	return s.sendLogs(ctx, c, w)
}

// logsOfJob answers with what workers print that names one job, from its submission to a
// little after its end. A job that cannot be read any more is there while a line of it is.
func (s *Service) logsOfJob(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID) error {
	w := logs.Watching{Endpoint: e, Job: id, NotBefore: madeSince(e, id)}
	if err := readLogWatching(c, s.queue.Now(), &w); err != nil {
		return err
	}
	w.Resume = w.Resume || w.Since.IsZero() // from the beginning
	j, err := s.queue.Current(ctx, e, id)
	switch {
	case errors.Is(err, job.ErrNotFound):
		w.Once = true
		if err := s.hasLines(ctx, w); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		w.NotBefore = j.Submitted.Add(-idSlack)
	}
	return s.sendLogs(ctx, c, w)
}

// hasLines returns job.ErrNotFound unless there is a line of the job.
func (s *Service) hasLines(ctx context.Context, w logs.Watching) error {
	w.After, w.Since, w.Resume = logs.Cursor{}, time.Time{}, true
	watch, err := logs.NewWatch(ctx, s.queue.Bus(), w)
	if err != nil {
		return err
	}
	defer watch.Close()
	some, err := watch.Next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return job.ErrNotFound
	case err == nil && len(some) == 0:
		return bus.ErrUnavailable // the time is over
	}
	return err
}

// readLogWatching reads which lines the request wants.
func readLogWatching(c *fiber.Ctx, now time.Time, w *logs.Watching) (err error) {
	if w.Since, err = web.Since(c.Query("since"), now); err != nil {
		return err
	}
	if w.Worker = strings.Clone(c.Query("worker")); w.Worker != "" && !pod.ValidID(w.Worker) {
		return web.Errorf(web.InvalidRequest, "worker is invalid; must be the id of a worker, which matches [A-Za-z0-9_-]{1,128}, got %.150q", w.Worker)
	}
	at, err := followingOf(c, "a line", logs.ParseCursor)
	w.After, w.Resume, w.Once = at.after, at.resume, at.once
	return err
}

// sendLogs answers with lines as they come.
func (s *Service) sendLogs(ctx context.Context, c *fiber.Ctx, w logs.Watching) error {
	watch, err := logs.NewWatch(ctx, s.queue.Bus(), w)
	if err != nil {
		return err
	}
	list := &lineList{s: s, e: w.Endpoint, watch: watch}
	if !w.Once {
		list.job = w.Job
	}
	s.sendList(c, list, watch.Close)
	return nil
}

// lineList is the lines of a watch, as they are sent.
type lineList struct {
	s     *Service
	e     endpoint.Endpoint
	job   job.ID // ends the list a little after its end; "" for a list that does not end with a job
	watch *logs.Watch
	late  time.Time // when the job is over and its lines are, zero while it runs
}

// place implements followedList.
func (l *lineList) place() string { return l.watch.After().String() }

// read implements followedList.
func (l *lineList) read(ctx context.Context, wait time.Duration, to *follower) error {
	if l.job != "" {
		wait = min(wait, jobPoll)
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	some, err := l.watch.Next(within)
	if err != nil {
		return err
	}
	for _, line := range some {
		data, err := json.Marshal(api.LogLine{
			Time: line.Time, WorkerID: line.Worker, JobID: line.Job, Stream: line.Stream, Level: line.Level, Text: line.Text, Truncated: line.Cut,
		})
		if err != nil {
			continue // strings are always JSON
		}
		to.add(line.Cursor.String(), "", data)
	}
	if len(some) == 0 && l.jobOver(ctx) {
		return io.EOF
	}
	return nil
}

// jobOver reports whether the job that is followed has ended, and its last lines are
// written. It looks where the job stands.
func (l *lineList) jobOver(ctx context.Context) bool {
	if l.job == "" {
		return false
	}
	if !l.late.IsZero() {
		return !time.Now().Before(l.late)
	}
	ctx, cancel := context.WithTimeout(ctx, web.AnswerWithin)
	defer cancel()
	j, err := l.s.queue.Current(ctx, l.e, l.job)
	if errors.Is(err, job.ErrNotFound) || err == nil && j.Status.Terminal() {
		l.late = time.Now().Add(lateLines)
		if err == nil { // it may have ended long ago
			l.late = l.late.Add(-max(0, l.s.queue.Now().Sub(j.Finished)))
		}
	}
	return !l.late.IsZero() && !time.Now().Before(l.late)
}
