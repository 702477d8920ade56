package api

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/web"
)

const (
	// logSlack is how much later than it happened an event may be in the log for a list
	// that ends before now: a recorder is about a second behind.
	logSlack = 10 * time.Second
	// recentFor is for how long what the beginning of an id names is looked for at the newest
	// end of the lists, since the log may not have it yet.
	recentFor = time.Minute
)

// placed is the part of a list of jobs that was asked for by time or by id.
type placed struct {
	// from and to bound when a job was queued, or ended if it is over; zero for none.
	from, to time.Time
	// id is what ids begin with, "" for any; madeFrom and madeTo are when these were made.
	id               string
	madeFrom, madeTo time.Time
	// asked is the query's own text, which a cursor is good for.
	asked string
}

// placedOf reads the parameters from, to and id.
func placedOf(c *fiber.Ctx, now time.Time) (p placed, err error) {
	if p.from, p.to, err = web.Bounds(c, now); err != nil {
		return p, err
	}
	args := c.Context().QueryArgs()
	if p.id = c.Query("id"); args.Has("id") {
		var ok bool
		if p.madeFrom, p.madeTo, ok = job.MadeWithin(p.id); !ok {
			return p, web.Errorf(web.InvalidRequest, "id is invalid; must be the beginning of a job's id, as 01920c2e-7a4b, from its first digit on, got %.50q", p.id)
		}
	}
	for _, name := range []string{"from", "to", "id"} {
		if args.Has(name) {
			p.asked += " " + name + " " + c.Query(name)
		}
	}
	p.id = strings.Clone(p.id)
	return p, nil
}

// has reports whether a job is of the time and the id.
func (p placed) has(j job.Job) bool {
	at := changedAt(j)
	return j.ID.Begins(p.id) && !at.Before(p.from) && (p.to.IsZero() || at.Before(p.to))
}

// since is the instant before which nothing of the list was written; zero for none.
func (p placed) since() time.Time {
	from := p.from
	if p.id != "" && p.madeFrom.After(from) {
		from = p.madeFrom.Add(-listSlack)
	}
	if from.IsZero() {
		return from
	}
	return from.Add(-events.ClockSlack)
}

// until is the instant from which on nothing of the list was written; zero for none.
func (p placed) until() time.Time {
	if p.to.IsZero() {
		return p.to
	}
	return p.to.Add(events.ClockSlack)
}

// window is what the lists of the queue are asked for.
func (q listQuery) window(before uint64, statuses []job.Status) queue.ListOptions {
	return queue.ListOptions{Before: before, Most: q.limit, Statuses: statuses, Since: q.since(), Until: q.until()}
}

// past is what the log is asked for.
func (s *Service) past(ctx context.Context, q listQuery, w queue.ListOptions) (events.Past, error) {
	p := events.Past{Before: w.Before, Most: w.Most, Since: s.queue.Now().Add(-max(q.endpoint.Retention, q.endpoint.SyncRetention) - time.Hour)}
	if q.since().After(p.Since) {
		p.Since = q.since()
	}
	for _, status := range w.Statuses {
		p.Kinds = append(p.Kinds, events.KindOf(status))
	}
	if p.Before > 0 || q.to.IsZero() {
		return p, nil
	}
	var err error
	p.Before, err = s.events.PlaceAt(ctx, q.endpoint.ID, q.to.Add(logSlack))
	return p, err
}

// byID reports whether the jobs are found by their ids rather than in the lists: a whole id,
// or the beginning of ids that were made some time ago.
func (s *Service) byID(q listQuery) bool {
	return q.id != "" && (q.wholeID() || q.madeTo.Before(s.queue.Now().Add(-s.recentFor)))
}

func (p placed) wholeID() bool { _, whole := job.ID(p.id).Made(); return whole }

// listByID finds jobs by the beginning of their ids, which says when they were submitted.
// First come those that still wait or run, by their place in the queue; then those of which the
// log has the first event since.
func (s *Service) listByID(ctx context.Context, q listQuery) (page []job.Job, next position, err error) {
	if q.wholeID() {
		page, err = s.jobsOf(ctx, q, []job.ID{job.ID(q.id), job.SyncPrefix + job.ID(q.id)})
		return page, position{live: done, ended: done}, err
	}
	if next = q.at; next.begun == 0 {
		next.begun = uint64(s.queue.Now().UnixMilli())
	}
	if next.live != done {
		if page, next.live, err = s.stillQueued(ctx, q); err != nil || next.live > 0 {
			return page, next, err
		}
		if next.live = done; len(page) == q.limit {
			return page, next, nil
		}
	}
	first := events.Firsts{ID: q.id, From: q.madeFrom.Add(-listSlack), To: q.madeTo, After: next.ended, Most: q.limit - len(page)}
	ids, after, err := s.events.Firsts(ctx, q.endpoint.ID, first)
	if err != nil {
		return nil, next, err
	}
	jobs, err := s.jobsOf(ctx, q, ids)
	for _, j := range jobs {
		// What changed since this list was begun may be on an earlier page of it.
		if !inFirstQueue(j) && uint64(changedAt(j).UnixMilli()) < next.begun {
			page = append(page, j)
		}
	}
	next.ended = max(after, done)
	return page, next, err
}

// changedAt is when a job was queued, or ended if it is over.
func changedAt(j job.Job) time.Time {
	if j.Status.Terminal() {
		return j.Finished
	}
	return j.Queued
}

// inFirstQueue reports whether a job has the place in the queue that its id names.
func inFirstQueue(j job.Job) bool { return !j.Status.Terminal() && j.Attempt == 1 }

// stillQueued lists the jobs that wait or run since they were submitted, the newest first.
func (s *Service) stillQueued(ctx context.Context, q listQuery) (page []job.Job, next uint64, err error) {
	w := q.window(q.at.live, nil)
	if w.Statuses, _ = split(q.statuses); len(w.Statuses) == 0 {
		return nil, 0, nil
	}
	if until := q.madeTo.Add(listSlack); w.Until.IsZero() || until.Before(w.Until) {
		w.Until = until
	}
	list, next, err := s.queue.Lists.Live(ctx, q.endpoint, w)
	for _, l := range list {
		if inFirstQueue(l.Job) && q.has(l.Job) {
			page = append(page, l.Job)
		}
	}
	return page, next, err
}

// jobsOf reads the jobs of ids that the list has, in their order.
func (s *Service) jobsOf(ctx context.Context, q listQuery, ids []job.ID) (list []job.Job, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := s.queue.Lists.Lookup(ctx, q.endpoint, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if j, ok := found[id]; ok && q.has(j) && (len(q.statuses) == 0 || slices.Contains(q.statuses, j.Status)) {
			list = append(list, j)
		}
	}
	return list, nil
}
