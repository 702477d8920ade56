package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/web"
)

// requests lists an endpoint's jobs, the newest first, page by page.
func (s *Service) requests(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return err
	}
	q, err := listQueryOf(c, e)
	if err != nil {
		return err
	}
	page, next, err := s.list(ctx, e, q)
	if err != nil {
		return err
	}
	return c.JSON(listOf(page, q, next))
}

// listQuery is what /requests was asked for.
type listQuery struct {
	endpoint endpoint.Endpoint
	// statuses are in the order of job.Statuses; none means all.
	statuses []job.Status
	limit    int
	at       position
}

// position is how far a list has come, in each of the two streams that it is
// merged from. 0 is the newest end, done the other one.
type position struct{ live, ended uint64 }

const done = 1 // nothing comes before the first sequence

func (p position) over() bool { return p.live == done && p.ended == done }

// list reads a page. Live jobs are read first: one that ends in between is in
// both lists, and none is in neither.
func (s *Service) list(ctx context.Context, e endpoint.Endpoint, q listQuery) (page []job.Job, next position, err error) {
	liveOnes, endedOnes := split(q.statuses)
	var live, ended []queue.Listed
	next = position{done, done}
	if len(liveOnes) > 0 && q.at.live != done {
		live, next.live, err = s.queue.ListLive(ctx, e, queue.Window{Before: q.at.live, Most: q.limit, Statuses: liveOnes})
		if err != nil {
			return nil, next, err
		}
	}
	if len(endedOnes) > 0 && q.at.ended != done {
		ended, next.ended, err = s.listEnded(ctx, e, queue.Window{Before: q.at.ended, Most: q.limit, Statuses: endedOnes})
		if err != nil {
			return nil, next, err
		}
	}
	next = position{max(next.live, done), max(next.ended, done)}
	live = slices.DeleteFunc(live, func(l queue.Listed) bool {
		return slices.ContainsFunc(ended, func(e queue.Listed) bool { return e.Job.ID == l.Job.ID })
	})
	page, next = merge(live, ended, next, q.limit)
	return page, next, nil
}

// split separates the statuses of jobs that wait or run from those of jobs
// that are over.
func split(statuses []job.Status) (live, ended []job.Status) {
	if len(statuses) == 0 {
		statuses = job.Statuses()
	}
	for _, status := range statuses {
		if status.Terminal() {
			ended = append(ended, status)
		} else {
			live = append(live, status)
		}
	}
	return live, ended
}

// merge takes the newest of both lists, of which neither is sorted anew, since
// a page must end at one place in each. What is not taken comes next, so a job
// without a place comes first.
func merge(live, ended []queue.Listed, next position, limit int) ([]job.Job, position) {
	var page []job.Job
	for len(page) < limit && len(live)+len(ended) > 0 {
		if len(ended) == 0 || len(live) > 0 && ended[0].Seq > 0 && live[0].Job.Queued.After(ended[0].Job.Finished) {
			page, live = append(page, live[0].Job), live[1:]
		} else {
			page, ended = append(page, ended[0].Job), ended[1:]
		}
	}
	if len(live) > 0 {
		next.live = live[0].Seq + 1
	}
	if left := slices.IndexFunc(ended, func(l queue.Listed) bool { return l.Seq > 0 }); left >= 0 {
		next.ended = ended[left].Seq + 1
	}
	return page, next
}

// listEnded lists jobs that are over. All of them are in the records; of some
// statuses only, few may be among many others there, so they are found by
// their events, of which each status has its own.
func (s *Service) listEnded(ctx context.Context, e endpoint.Endpoint, w queue.Window) ([]queue.Listed, uint64, error) {
	if _, all := split(nil); s.events == nil || len(w.Statuses) == len(all) {
		return s.queue.ListEnded(ctx, e, w)
	}
	past := events.Past{Before: w.Before, Most: w.Most, Since: s.queue.Now().Add(-max(e.Retention, e.SyncRetention) - time.Hour)}
	for _, status := range w.Statuses {
		past.Kinds = append(past.Kinds, events.KindOf(status))
	}
	told, next, err := s.events.Before(ctx, e.ID, past)
	if err != nil {
		return nil, 0, err
	}
	page, err := s.still(ctx, e, told)
	if err != nil || w.Before > 0 {
		return page, next, err
	}
	untold, err := s.untold(ctx, e, w, told, next)
	return append(untold, page...), next, err
}

// still are the jobs whose end was told and can still be read: not retried,
// nor past their retention.
func (s *Service) still(ctx context.Context, e endpoint.Endpoint, told []events.Event) ([]queue.Listed, error) {
	now := s.queue.Now()
	told = slices.DeleteFunc(slices.Clone(told), func(ev events.Event) bool { return !now.Before(ev.RetainUntil) })
	ids := make([]job.ID, len(told))
	for i, ev := range told {
		ids[i] = ev.Job
	}
	if len(ids) == 0 {
		return nil, nil
	}
	jobs, err := s.queue.Lookup(ctx, e, ids)
	if err != nil {
		return nil, err
	}
	var page []queue.Listed
	for _, ev := range told {
		if j, ok := jobs[ev.Job]; ok && j.Attempt == ev.Attempt && j.Status == ev.Status {
			page = append(page, queue.Listed{Job: j, Seq: ev.Seq})
		}
	}
	return page, nil
}

// untoldFor is how far the order of events may differ from that of the instants
// at which jobs ended, which several processes measured.
const untoldFor = 2 * time.Second

// untold are the jobs whose end was not told yet: the log is a little behind.
// Their events come after all that this list walks over, the ones told and
// those before next, so no later page has them.
func (s *Service) untold(ctx context.Context, e endpoint.Endpoint, w queue.Window, told []events.Event, next uint64) ([]queue.Listed, error) {
	walked := next
	if len(told) > 0 {
		walked, w.Since = told[0].Seq, told[0].At.Add(-untoldFor)
	}
	recent, _, err := s.queue.ListEnded(ctx, e, w)
	if err != nil {
		return nil, err
	}
	var page []queue.Listed
	for _, l := range recent {
		of := func(ev events.Event) bool {
			return ev.Job == l.Job.ID && ev.Attempt == l.Job.Attempt && ev.Status == l.Job.Status
		}
		if slices.ContainsFunc(told, of) {
			continue
		}
		last, err := s.events.Last(ctx, e.ID, l.Job.ID)
		switch {
		case err != nil && !errors.Is(err, events.ErrNotFound):
			return nil, err
		case err == nil && of(last) && last.Seq <= walked:
			continue // on a later page
		}
		page = append(page, queue.Listed{Job: l.Job}) // it has no place among the events
	}
	return page, nil
}
