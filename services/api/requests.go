package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/record"
	"flightline/shared/registry"
	"flightline/shared/stats"
	"flightline/shared/web"
)

// requests lists an endpoint's jobs, the newest first, page by page.
func (s *Service) requests(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint) error {
	q, err := listQueryOf(c, e, s.queue.Now())
	if err != nil {
		return err
	}
	page, next, err := s.list(ctx, q)
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
	// worker and fingerprint are those wanted; "" means all.
	worker, fingerprint string
	placed
	limit int
	at    position
}

// filtered reports whether only the jobs of a worker or a cause are wanted.
func (q listQuery) filtered() bool { return q.worker != "" || q.fingerprint != "" }

// has reports whether a job is of the worker, the cause, the time and the id.
func (q listQuery) has(j job.Job) bool {
	return q.placed.has(j) && !record.LocationOf(q.endpoint).OfEarlier(&j) && (q.worker == "" || j.Worker == q.worker) && (q.fingerprint == "" || j.Status == job.Failed && stats.Fingerprint(j.Error) == q.fingerprint)
}

// matching are the items that the query has, in the memory of the list.
func (q listQuery) matching(list []queue.ListItem) []queue.ListItem {
	return slices.DeleteFunc(list, func(l queue.ListItem) bool { return !q.has(l.Job) })
}

// position is how far a list has come, in each of the two streams that it is
// merged from. 0 is the newest end, done the other one. begun is when a list by id was
// begun, in milliseconds of Unix time, 0 for another list.
type position struct{ live, ended, begun uint64 }

const done = 1 // nothing comes before the first sequence

func (p position) over() bool { return p.live == done && p.ended == done }

// list reads a page. Live jobs are read first: a job that ends in between is in
// both lists, and none is in neither.
func (s *Service) list(ctx context.Context, q listQuery) (page []job.Job, next position, err error) {
	if s.byID(q) {
		return s.listByID(ctx, q)
	}
	liveOnes, endedOnes := split(q.statuses)
	var live, ended []queue.ListItem
	next = position{live: done, ended: done}
	if len(liveOnes) > 0 && q.at.live != done {
		live, next.live, err = s.listLive(ctx, q, q.window(q.at.live, liveOnes))
		if err != nil {
			return nil, next, err
		}
	}
	if len(endedOnes) > 0 && q.at.ended != done {
		ended, next.ended, err = s.listEnded(ctx, q, q.window(q.at.ended, endedOnes))
		if err != nil {
			return nil, next, err
		}
	}
	next = position{live: max(next.live, done), ended: max(next.ended, done)}
	live = slices.DeleteFunc(live, func(l queue.ListItem) bool {
		return slices.ContainsFunc(ended, func(e queue.ListItem) bool { return e.Job.ID == l.Job.ID })
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

// merge takes the newest of both lists, neither of which is sorted again, since
// a page must end at one place in each. What is not taken comes next, so a job
// without a place comes first. Times are whole milliseconds: within one, a job that
// waits or runs comes before the ended ones.
func merge(live, ended []queue.ListItem, next position, limit int) ([]job.Job, position) {
	var page []job.Job
	for len(page) < limit && len(live)+len(ended) > 0 {
		if len(ended) == 0 || len(live) > 0 && ended[0].Seq > 0 && !live[0].Job.Queued.Before(ended[0].Job.Finished) {
			page, live = append(page, live[0].Job), live[1:]
		} else {
			page, ended = append(page, ended[0].Job), ended[1:]
		}
	}
	if len(live) > 0 {
		next.live = live[0].Seq + 1
	}
	if left := slices.IndexFunc(ended, func(l queue.ListItem) bool { return l.Seq > 0 }); left >= 0 {
		next.ended = ended[left].Seq + 1
	}
	return page, next
}

// listLive lists jobs that wait or run. Those of a worker are the ones that it runs; none
// has failed.
func (s *Service) listLive(ctx context.Context, q listQuery, w queue.ListOptions) ([]queue.ListItem, uint64, error) {
	switch {
	case !q.filtered():
		list, next, err := s.queue.Lists.Live(ctx, q.endpoint, w)
		return q.matching(list), next, err
	case q.fingerprint != "" || !slices.Contains(w.Statuses, job.InProgress):
		return nil, 0, nil
	}
	jobs, err := s.heldBy(ctx, q.endpoint, q.worker)
	if err != nil {
		return nil, 0, err
	}
	list, next := runningOf(jobs, q, w)
	return list, next, nil
}

// heldBy are the jobs that a worker may hold: those that its heartbeat names, or, while it is
// silent, those whose records name it.
func (s *Service) heldBy(ctx context.Context, e endpoint.Endpoint, worker string) (map[job.ID]job.Job, error) {
	workers, err := s.registry.Workers.List(ctx, e.ID)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(workers, func(w registry.Worker) bool { return w.ID == worker })
	if at < 0 {
		return s.queue.Lists.HeldBy(ctx, e, worker)
	}
	var ids []job.ID
	for _, id := range workers[at].Running {
		ids = append(ids, job.ID(id))
	}
	return s.queue.Lists.Lookup(ctx, e, ids)
}

// tieBits are for jobs of a worker that were queued in the same millisecond.
const tieBits = 12

// runningOf takes a page of the jobs that a worker runs, the one that was queued last
// first. Their places are made of that time.
func runningOf(jobs map[job.ID]job.Job, q listQuery, w queue.ListOptions) (list []queue.ListItem, next uint64) {
	for _, j := range jobs {
		if j.Status == job.InProgress && q.has(j) {
			list = append(list, queue.ListItem{Job: j})
		}
	}
	slices.SortFunc(list, func(a, b queue.ListItem) int {
		return cmp.Or(b.Job.Queued.Compare(a.Job.Queued), strings.Compare(string(a.Job.ID), string(b.Job.ID)))
	})
	for i := range slices.Backward(list) {
		list[i].Seq = uint64(list[i].Job.Queued.UnixMilli()) << tieBits
		if i+1 < len(list) && list[i+1].Seq >= list[i].Seq {
			list[i].Seq = list[i+1].Seq + 1
		}
	}
	list = slices.DeleteFunc(list, func(l queue.ListItem) bool { return w.Before != 0 && l.Seq >= w.Before })
	if len(list) > w.Most {
		return list[:w.Most], list[w.Most-1].Seq
	}
	return list, 0
}

// listEnded lists jobs that are over. All of them are in the records; of some
// statuses only, or of a worker or a cause, few may be among many others there, so
// they are found by their events.
func (s *Service) listEnded(ctx context.Context, q listQuery, w queue.ListOptions) ([]queue.ListItem, uint64, error) {
	if _, all := split(nil); len(w.Statuses) == len(all) && !q.filtered() {
		page, next, err := s.queue.Lists.Ended(ctx, q.endpoint, w)
		return q.matching(page), next, err
	}
	past, err := s.past(ctx, q, w)
	if err != nil {
		return nil, 0, err
	}
	logged, next, err := s.loggedEnds(ctx, q, past)
	if err != nil {
		return nil, 0, err
	}
	page, err := s.readEnded(ctx, q.endpoint, logged)
	page = q.matching(page)
	if err != nil || past.Before > 0 {
		return page, next, err
	}
	unlogged, err := s.listUnlogged(ctx, q.endpoint, w, logged, next)
	return append(q.matching(unlogged), page...), next, err
}

// loggedEnds are the ends that the log of events has.
func (s *Service) loggedEnds(ctx context.Context, q listQuery, past events.Past) ([]events.Event, uint64, error) {
	if !q.filtered() {
		return s.events.Before(ctx, q.endpoint.ID, past)
	}
	list, next, err := s.events.EndsBefore(ctx, q.endpoint.ID, events.Ends{Worker: q.worker, Fingerprint: q.fingerprint, Past: past})
	if q.worker != "" && q.fingerprint != "" {
		list = slices.DeleteFunc(list, func(ev events.Event) bool { return stats.Fingerprint(ev.Cause) != q.fingerprint })
	}
	return list, next, err
}

// readEnded reads the jobs of ends that the log has, without those that cannot be read any
// more: they were retried, or are past their retention.
func (s *Service) readEnded(ctx context.Context, e endpoint.Endpoint, logged []events.Event) ([]queue.ListItem, error) {
	now := s.queue.Now()
	logged = slices.DeleteFunc(slices.Clone(logged), func(ev events.Event) bool { return !now.Before(ev.RetainUntil) })
	ids := make([]job.ID, len(logged))
	for i, ev := range logged {
		ids[i] = ev.Job
	}
	if len(ids) == 0 {
		return nil, nil
	}
	jobs, err := s.queue.Lists.Lookup(ctx, e, ids)
	if err != nil {
		return nil, err
	}
	var page []queue.ListItem
	for _, ev := range logged {
		if j, ok := jobs[ev.Job]; ok && j.Attempt == ev.Attempt && j.Status == ev.Status {
			page = append(page, queue.ListItem{Job: j, Seq: ev.Seq})
		}
	}
	return page, nil
}

// orderSlack is how far the order of events may differ from that of the instants
// at which jobs ended, which several processes measured.
const orderSlack = 2 * time.Second

// listUnlogged lists the jobs whose end the log does not have yet: it is a little behind.
// Their events come after all that this list walks over, the logged ones and
// those before next, so no later page has them.
func (s *Service) listUnlogged(ctx context.Context, e endpoint.Endpoint, w queue.ListOptions, logged []events.Event, next uint64) ([]queue.ListItem, error) {
	walked := next
	if len(logged) > 0 {
		walked, w.Since = logged[0].Seq, logged[0].At.Add(-orderSlack)
	}
	recent, _, err := s.queue.Lists.Ended(ctx, e, w)
	if err != nil {
		return nil, err
	}
	if len(recent) == 0 {
		return nil, nil
	}
	oldest := slices.MinFunc(recent, func(a, b queue.ListItem) int { return a.Job.Finished.Compare(b.Job.Finished) })
	later, err := s.ends(ctx, e, oldest.Job.Finished, walked)
	if err != nil {
		return nil, err
	}
	for _, ev := range logged {
		later[end{ev.Job, ev.Attempt, ev.Status}] = true
	}
	var page []queue.ListItem
	for _, l := range recent {
		if !later[end{l.Job.ID, l.Job.Attempt, l.Job.Status}] {
			page = append(page, queue.ListItem{Job: l.Job}) // it has no place among the events
		}
	}
	return page, nil
}

// end names the end of an attempt.
type end struct {
	job     job.ID
	attempt int
	status  job.Status
}

// ends are those in the log from since on, up to the sequence upTo: a page that was
// walked over has them, or a later one.
func (s *Service) ends(ctx context.Context, e endpoint.Endpoint, since time.Time, upTo uint64) (map[end]bool, error) {
	found := map[end]bool{}
	err := s.events.ScanSince(ctx, e.ID, "", since.Add(-events.ClockSlack), func(entry events.Entry) bool {
		for _, ev := range entry.Events {
			if ev.Seq <= upTo && ev.Status.Terminal() {
				found[end{ev.Job, ev.Attempt, ev.Status}] = true
			}
		}
		return len(entry.Events) == 0 || entry.Events[0].Seq <= upTo
	})
	return found, err
}

const (
	// defaultLimit and maxLimit bound a page of /requests.
	defaultLimit, maxLimit = 10, 100
)

func listOf(page []job.Job, q listQuery, next position) api.RequestsPage {
	v := api.RequestsPage{Requests: make([]api.ListedJob, 0, len(page)), Limit: q.limit, HasMore: !next.over()}
	for _, j := range page {
		full := viewOf(&j)
		r := api.ListedJob{
			ID: full.ID, Status: full.Status, DelayTime: full.DelayTime, ExecutionTime: full.ExecutionTime,
			Retries: full.Retries, WorkerID: full.WorkerID, Error: stats.Cause(full.Error), SubmittedAt: api.FormatTime(j.Submitted), FinishedAt: api.FormatTime(j.Finished),
		}
		if j.Status == job.Failed {
			r.Fingerprint = stats.Fingerprint(full.Error)
		}
		if j.Status != job.InQueue {
			r.StartedAt = api.FormatTime(j.Started)
		}
		v.Requests = append(v.Requests, r)
	}
	if v.HasMore {
		v.Cursor = next.cursor(q)
	}
	return v
}

func listQueryOf(c *fiber.Ctx, e endpoint.Endpoint, now time.Time) (listQuery, error) {
	q := listQuery{endpoint: e}
	var err error
	if q.statuses, err = choices(c, "status", job.Statuses(), func(s job.Status) string { return string(s) }); err != nil {
		return q, err
	}
	if q.worker, q.fingerprint, err = filtersOf(c); err != nil {
		return q, err
	}
	if q.placed, err = placedOf(c, now); err != nil {
		return q, err
	}
	if q.limit, err = limitOf(c, defaultLimit, maxLimit); err != nil {
		return q, err
	}
	if c.Context().QueryArgs().Has("cursor") {
		if q.at, err = positionOf(c.Query("cursor"), q); err != nil {
			return q, err
		}
	}
	return q, nil
}

// filtersOf reads the parameters worker and fingerprint.
func filtersOf(c *fiber.Ctx) (worker, fingerprint string, err error) {
	worker, fingerprint = strings.Clone(c.Query("worker")), strings.Clone(c.Query("fingerprint"))
	if c.Context().QueryArgs().Has("worker") && !pod.ValidID(worker) {
		return "", "", web.Errorf(web.InvalidRequest, "worker is invalid; must be 1 to 128 of A-Z, a-z, 0-9, _ and -, got %.150q", worker)
	}
	if c.Context().QueryArgs().Has("fingerprint") && !stats.ValidFingerprint(fingerprint) {
		return "", "", web.Errorf(web.InvalidRequest, "fingerprint is invalid; must be 16 hexadecimal digits in lower case, got %.50q", fingerprint)
	}
	return worker, fingerprint, nil
}

// cursor spells a position for clients. It is good for the same list only.
func (p position) cursor(q listQuery) string {
	b := binary.AppendUvarint(binary.AppendUvarint(nil, p.live), p.ended)
	if p.begun > 0 {
		b = binary.AppendUvarint(b, p.begun)
	}
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, q.check(b)))
}

// check distinguishes the endpoint and statuses of a cursor from others, and a cursor
// from something else.
func (q listQuery) check(b []byte) uint32 {
	h := crc32.NewIEEE()
	_, _ = h.Write(b) // never fails
	_, _ = h.Write([]byte(q.endpoint.ID + " " + strconv.FormatInt(q.endpoint.Created.UnixMilli(), 10)))
	for _, status := range q.statuses {
		_, _ = h.Write([]byte(" " + status))
	}
	if q.filtered() {
		_, _ = h.Write([]byte(" worker " + q.worker + " fingerprint " + q.fingerprint))
	}
	_, _ = h.Write([]byte(q.asked))
	return h.Sum32()
}

// positionOf reads what cursor wrote.
func positionOf(text string, q listQuery) (position, error) {
	var p position
	b, err := base64.RawURLEncoding.DecodeString(text)
	body, sum := b[:max(0, len(b)-4)], b[max(0, len(b)-4):]
	live, n := binary.Uvarint(body)
	ended, m := binary.Uvarint(body[max(0, n):])
	begun, o := uint64(0), 0
	if rest := body[max(0, n)+max(0, m):]; len(rest) > 0 {
		begun, o = binary.Uvarint(rest)
	}
	if err != nil || len(sum) < 4 || n <= 0 || m <= 0 || o < 0 || n+m+o != len(body) || binary.BigEndian.Uint32(sum) != q.check(body) {
		return p, web.Errorf(web.InvalidRequest, "cursor is invalid; take it from the page before, with the same endpoint and filters")
	}
	return position{live, ended, begun}, nil
}
