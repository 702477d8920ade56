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
	"flightline/shared/retry"
	"flightline/shared/web"
)

const (
	// jobPoll is how often a job is looked at whose lines are followed.
	jobPoll = time.Second
	// lateLines is how long after a job's end its lines may still come.
	lateLines = 3 * time.Second
)

// logsOfEndpoint answers with what an endpoint's workers print.
func (s *Service) logsOfEndpoint(ctx context.Context, c *fiber.Ctx) error {
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return err
	}
	w := logs.Watching{Endpoint: e}
	if err := watchLogs(c, s.queue.Now(), &w); err != nil {
		return err
	}
	return s.sendLogs(ctx, c, w)
}

// logsOfJob answers with what workers print that names one job, from its submission to a
// little after its end. A job that cannot be read any more is there while a line of it is.
func (s *Service) logsOfJob(ctx context.Context, c *fiber.Ctx) error {
	e, id, err := s.job(ctx, c)
	if err != nil {
		return err
	}
	w := logs.Watching{Endpoint: e, Job: id, NotBefore: madeSince(e, id)}
	if err := watchLogs(c, s.queue.Now(), &w); err != nil {
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

// watchLogs reads which lines the request wants.
func watchLogs(c *fiber.Ctx, now time.Time, w *logs.Watching) (err error) {
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

// lineStream is a connection on which lines are sent.
type lineStream struct {
	s     *Service
	e     endpoint.Endpoint
	job   job.ID // "" for all
	once  bool
	watch *logs.Watch
	held  context.Context //nolint:containedctx // the writer, which runs after the handler, is given none
	quiet time.Time       // when something was written last
	late  time.Time       // when the job is over and its lines are, zero while it runs
	followText
}

// sendLogs answers with lines as they come.
func (s *Service) sendLogs(ctx context.Context, c *fiber.Ctx, w logs.Watching) error {
	watch, err := logs.NewWatch(ctx, s.queue.Bus(), w)
	if err != nil {
		return err
	}
	held, release := web.LongPoll(c, subscriptionHold)
	v := &lineStream{s: s, e: w.Endpoint, job: w.Job, once: w.Once, watch: watch, held: held}
	sendAsItComes(c, v.next, func() {
		watch.Close()
		release()
	})
	return nil
}

// next returns the next lines, or a comment when there were none for a while.
func (v *lineStream) next() ([]byte, error) {
	if first, err := v.start(v.watch.After().String()); first != nil || err != nil {
		return first, err
	}
	v.quiet = time.Now()
	for v.text.Len() == 0 {
		if err := v.more(); err != nil {
			return nil, err
		}
	}
	return v.text.Bytes(), nil
}

// more waits a while for lines, and writes them, or the end.
func (v *lineStream) more() error {
	ctx, cancel := context.WithTimeout(v.held, v.pause())
	defer cancel()
	some, err := v.watch.Next(ctx)
	switch {
	case errors.Is(context.Cause(v.held), web.ErrGone):
		return web.ErrGone
	case errors.Is(err, io.EOF):
		v.end()
	case errors.Is(err, bus.ErrUnavailable):
		_ = retry.Sleep(ctx, eventsRetryDelay) // the reader waits with us
	case err != nil:
		v.s.log.ErrorContext(ctx, "logs broken off", "endpoint", v.e.ID, "err", err)
		return err
	case len(some) > 0:
		v.write(some)
		return nil
	case v.held.Err() != nil:
		return io.EOF // the server stops, or the hour is over; the client comes back
	}
	if v.text.Len() == 0 && v.jobOver() {
		v.end()
	}
	if v.text.Len() == 0 && time.Since(v.quiet) >= keepAlive {
		v.alive(v.watch.After().String())
	}
	return nil
}

// pause is how long a look may wait for lines.
func (v *lineStream) pause() time.Duration {
	if v.job != "" && !v.once {
		return jobPoll
	}
	return keepAlive
}

// jobOver reports whether the job that is followed has ended, and its last lines are
// written. It looks where the job stands.
func (v *lineStream) jobOver() bool {
	if v.job == "" || v.once {
		return false
	}
	if !v.late.IsZero() {
		return !time.Now().Before(v.late)
	}
	ctx, cancel := context.WithTimeout(v.held, web.AnswerWithin)
	defer cancel()
	j, err := v.s.queue.Current(ctx, v.e, v.job)
	if errors.Is(err, job.ErrNotFound) || err == nil && j.Status.Terminal() {
		v.late = time.Now().Add(lateLines)
		if err == nil { // it may have ended long ago
			v.late = v.late.Add(-max(0, v.s.queue.Now().Sub(j.Finished)))
		}
	}
	return !v.late.IsZero() && !time.Now().Before(v.late)
}

// write writes lines, each with its place as its id.
func (v *lineStream) write(lines []logs.Entry) {
	for _, l := range lines {
		data, err := json.Marshal(api.LogLine{
			Time: l.Time, WorkerID: l.Worker, JobID: l.Job, Stream: l.Stream, Level: l.Level, Text: l.Text, Truncated: l.Cut,
		})
		if err != nil {
			continue // strings are always JSON
		}
		v.add(l.Cursor.String(), "", data)
	}
}
