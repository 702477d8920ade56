package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// Lists reads many jobs of an endpoint at a time, and finds one among all endpoints.
type Lists struct{ q *Queue }

// ListOptions is a part of a list that is read from its newest end.
type ListOptions struct {
	// Before is where to go on: what the call before returned as next. 0 means
	// the newest end.
	Before uint64
	// Most bounds the number of jobs; at least 1.
	Most int
	// Statuses are those wanted. None means all that the list has.
	Statuses []job.Status
	// Since leaves out what was written before, Until what was written then or later; the
	// list seeks both. The zero time means nothing.
	Since, Until time.Time
}

func (w ListOptions) wants(s job.Status) bool {
	return len(w.Statuses) == 0 || slices.Contains(w.Statuses, s)
}

// ListItem is a job in a list, without output.
type ListItem struct {
	Job job.Job
	// Seq is its place; a later page goes on before it.
	Seq uint64
}

// maxListReads is how many times one call may go on after it found too little:
// what it costs is bounded, however much is not wanted.
const maxListReads = 8

// Live returns the endpoint's jobs that are IN_QUEUE or IN_PROGRESS, in the
// order in which they were queued, the last one first. next is the Before of
// the following page, 0 after the last one; a page may be short or empty all
// the same. Its cost depends on Most, not on the number of jobs: it walks over
// queue messages and looks up the records of those on the page. Any replica may
// answer, so the last writes may be missing. It returns bus.ErrUnavailable.
//
// A run whose ttl was lengthened is listed until the ttl it had before is over:
// its queue message ends then.
func (l *Lists) Live(ctx context.Context, e endpoint.Endpoint, w ListOptions) (jobs []ListItem, next uint64, err error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	at := record.LocationOf(e)
	if w.Before == 0 && !w.wants(job.InQueue) {
		if w.Before, err = l.q.read.deliveredBefore(ctx, e.ID); err != nil || w.Before == 0 {
			return nil, 0, err
		}
	}
	return w.walk(ctx, l.q.read, streams.Jobs(e.ID), ">", func(got []*nats.Msg) ([]*record.Record, error) { return l.q.read.live(ctx, at, got) })
}

// Ended returns the endpoint's jobs that are over and can still be read, in
// the order of the last write, the newest first; else it is like Live. A
// job that was retried is left out.
func (l *Lists) Ended(ctx context.Context, e endpoint.Endpoint, w ListOptions) (jobs []ListItem, next uint64, err error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	at, server := record.LocationOf(e), l.q.nc.ConnectedServerId()
	jobs, next, err = w.walk(ctx, l.q.read, streams.Records(e.Partition), streams.AnyAttempt(e.Partition, e.ID, "*"),
		func(got []*nats.Msg) ([]*record.Record, error) { return l.q.read.ended(ctx, at, got) })
	if err == nil && len(jobs) > 0 { // readers must not see an end that a power loss may undo
		err = l.q.bus.WaitDurable(ctx, streams.Records(e.Partition), server)
	}
	return jobs, next, err
}

// walk reads a stream backwards until the window is full, or for maxListReads.
// of turns messages into the records that may be shown, nil for the others.
func (w ListOptions) walk(ctx context.Context, rd reader, stream, filter string, of func([]*nats.Msg) ([]*record.Record, error)) (jobs []ListItem, next uint64, err error) {
	back, err := w.back(ctx, rd, stream, filter)
	if err != nil || back.Before == 0 {
		return nil, 0, err
	}
	for range maxListReads {
		got, next, err := rd.bus.Backwards(ctx, back)
		if err != nil {
			return nil, 0, err
		}
		found, err := of(got)
		if err != nil {
			return nil, 0, err
		}
		var taken int
		if jobs, taken = w.add(jobs, got, found, rd.bus.Now()); taken < len(got) || len(jobs) == back.Most && next > 0 {
			return jobs, bus.Sequence(got[taken-1]), nil
		}
		if next == 0 {
			return jobs, 0, nil
		}
		back.Before = next
	}
	return jobs, back.Before, nil
}

// back is the part of a stream that the window may have; its Before is 0 for none.
func (w ListOptions) back(ctx context.Context, rd reader, stream, filter string) (bus.Back, error) {
	first, last, err := rd.ends(ctx, stream)
	if err != nil || last == 0 {
		return bus.Back{}, err
	}
	back := bus.Back{Stream: stream, Filter: filter, First: first, Before: w.Before, Most: max(1, w.Most)}
	if w.Before == 0 || w.Before > last {
		back.Before = last + 1
	}
	if !w.Until.IsZero() {
		until, err := rd.placeAt(ctx, stream, w.Until)
		if err != nil {
			return back, err
		}
		if until > 0 {
			back.Before = min(back.Before, until)
		}
	}
	if !w.Since.IsZero() { // a search in what is older would be in vain
		since, err := rd.placeAt(ctx, stream, w.Since)
		if err != nil || since == 0 {
			return bus.Back{}, err
		}
		back.First = max(first, since)
	}
	return back, nil
}

// placeAt is the first sequence of a stream that was written at t or later; 0 if none was.
func (rd reader) placeAt(ctx context.Context, stream string, t time.Time) (uint64, error) {
	m, err := rd.bus.DirectSince(ctx, stream, ">", t)
	if errors.Is(err, bus.ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return bus.Sequence(m), nil
}

// add adds to jobs what the window wants of the records found, until it is
// full, and returns how many it has looked at.
func (w ListOptions) add(jobs []ListItem, got []*nats.Msg, found []*record.Record, now time.Time) ([]ListItem, int) {
	for i, r := range found {
		if r == nil || !r.Visible(now) || !w.wants(r.Status) {
			continue
		}
		if len(jobs) == max(1, w.Most) {
			return jobs, i
		}
		r.Output = nil
		jobs = append(jobs, ListItem{r.Job, bus.Sequence(got[i])})
	}
	return jobs, len(found)
}

// parseQueued reads what the header of a queue message says.
func parseQueued(at record.Location, m *nats.Msg) (*record.Record, error) {
	id := streams.JobOf(bus.SubjectOf(m))
	r, _, err := record.ParseHeader(at, id, m.Header, 0)
	if err != nil {
		return nil, err
	}
	r.QueueSeq = bus.Sequence(m)
	return r, nil
}

// parseRecord reads what the header of a record says.
func parseRecord(at record.Location, m *nats.Msg) (*record.Record, error) {
	return headOf(at.Partition, bus.SubjectOf(m), m.Header, bus.Sequence(m))
}

// parseAll reads what the headers of messages say; nil for a message that cannot be
// decoded. It must not keep others from being listed: claim logs it at each delivery, or
// the recorder does.
func parseAll(at record.Location, got []*nats.Msg, parse func(record.Location, *nats.Msg) (*record.Record, error)) []*record.Record {
	found := make([]*record.Record, len(got))
	for i, m := range got {
		if r, err := parse(at, m); err == nil {
			found[i] = r
		}
	}
	return found
}

// Lookup reads where several jobs stand, in few requests and without output.
// Jobs that cannot be seen, or no longer, are left out. Any replica may answer,
// so the last writes may be missing. It returns bus.ErrUnavailable.
func (l *Lists) Lookup(ctx context.Context, e endpoint.Endpoint, ids []job.ID) (map[job.ID]job.Job, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	server := l.q.nc.ConnectedServerId()
	newest, err := l.q.read.rawOf(ctx, record.LocationOf(e), ids)
	if err != nil {
		return nil, err
	}
	now, seen := l.q.Now(), make(map[job.ID]job.Job, len(newest))
	for id, r := range newest {
		if r.Visible(now) {
			r.Output = nil
			seen[id] = r.Job
		}
	}
	return seen, l.q.bus.WaitDurable(ctx, streams.Records(e.Partition), server)
}

// maxHandedOut bounds the jobs of a class that Lists.HandedOut reads.
const maxHandedOut = 500

// HandedOut returns the jobs of a class that were handed out to a worker at
// least once and are not acknowledged: the 500 that were queued last. Some may
// have been decided a moment ago. A queue message that cannot be read is left
// out. It costs about a request for each job. Any replica may answer, so the
// last writes may be missing. It returns bus.ErrUnavailable.
func (l *Lists) HandedOut(ctx context.Context, e endpoint.Endpoint, class job.Class) ([]job.ID, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	got, err := l.q.read.handedOut(ctx, record.LocationOf(e), class)
	ids := make([]job.ID, len(got))
	for i, m := range got {
		ids[i] = streams.JobOf(bus.SubjectOf(m))
	}
	return ids, err
}

// HeldBy returns the jobs of HandedOut, of both classes, that are IN_PROGRESS at the worker,
// as their records say. It costs and returns what HandedOut and Lookup do.
func (l *Lists) HeldBy(ctx context.Context, e endpoint.Endpoint, worker string) (map[job.ID]job.Job, error) {
	var ids []job.ID
	for _, class := range []job.Class{job.Normal, job.LowPriority} {
		some, err := l.HandedOut(ctx, e, class)
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	jobs, err := l.Lookup(ctx, e, ids)
	maps.DeleteFunc(jobs, func(_ job.ID, j job.Job) bool { return j.Status != job.InProgress || j.Worker != worker })
	return jobs, err
}

// rawOf is the highest attempt of each job: its record, or its queue
// message while it has no record. Messages are read first: what is taken from
// the queue in between has a record by then.
func (rd reader) rawOf(ctx context.Context, at record.Location, ids []job.ID) (map[job.ID]*record.Record, error) {
	var waiting, records []string
	for _, id := range ids {
		waiting = append(waiting, streams.AnyClass(at.Endpoint, id))
		records = append(records, streams.AnyAttempt(at.Partition, at.Endpoint, id))
	}
	queued, err := rd.bus.LastOf(ctx, streams.Jobs(at.Endpoint), waiting)
	if err != nil {
		return nil, err
	}
	decided, err := rd.bus.LastOf(ctx, streams.Records(at.Partition), records)
	if err != nil {
		return nil, err
	}
	newest := make(map[job.ID]*record.Record, len(ids))
	for _, r := range append(parseAll(at, decided, parseRecord), parseAll(at, queued, parseQueued)...) {
		if r == nil {
			continue
		}
		if old := newest[r.ID]; old == nil || old.Attempt < r.Attempt {
			newest[r.ID] = r
		}
	}
	return newest, nil
}

// live are the records of queue messages; nil for a message that is left over
// from an attempt that has ended, or cannot be decoded.
func (rd reader) live(ctx context.Context, at record.Location, got []*nats.Msg) ([]*record.Record, error) {
	found, subjects := parseAll(at, got, parseQueued), make([]string, 0, len(got))
	for _, r := range found {
		if r != nil {
			subjects = append(subjects, streams.RecordSubject(at.Partition, at.Endpoint, r.ID, r.Attempt))
		}
	}
	records, err := rd.bus.LastOf(ctx, streams.Records(at.Partition), subjects)
	if err != nil {
		return nil, err
	}
	decided := make(map[job.ID]*record.Record, len(records))
	for _, r := range parseAll(at, records, parseRecord) {
		if r != nil {
			decided[r.ID] = r
		}
	}
	for i, r := range found {
		if r == nil || decided[r.ID] == nil {
			continue
		}
		if found[i] = decided[r.ID]; found[i].Status.Terminal() {
			found[i] = nil
		}
	}
	return found, nil
}

// ended are the records that messages hold; nil for an attempt that has not
// ended, that another one followed, or that cannot be decoded.
func (rd reader) ended(ctx context.Context, at record.Location, got []*nats.Msg) ([]*record.Record, error) {
	found := parseAll(at, got, parseRecord)
	var again []job.ID // may have been retried
	for i, r := range found {
		switch {
		case r == nil:
		case !r.Status.Terminal():
			found[i] = nil
		case r.Status.Retryable():
			again = append(again, r.ID)
		}
	}
	if len(again) == 0 {
		return found, nil
	}
	newest, err := rd.rawOf(ctx, at, again)
	if err != nil {
		return nil, err
	}
	for i, r := range found {
		if r != nil && newest[r.ID] != nil && newest[r.ID].Attempt > r.Attempt {
			found[i] = nil
		}
	}
	return found, nil
}

// deliveredBefore is the sequence that all messages come before that a worker was
// ever given; 0: none was.
func (rd reader) deliveredBefore(ctx context.Context, endpoint string) (uint64, error) {
	var before uint64
	for _, class := range job.Classes() {
		info, err := rd.consumer(ctx, endpoint, class)
		if err != nil {
			return 0, err
		}
		if info.Delivered.Stream > 0 {
			before = max(before, info.Delivered.Stream+1)
		}
	}
	return before, nil
}

// ends are the first and the last sequence of a stream; 0 if it is empty.
func (rd reader) ends(ctx context.Context, stream string) (first, last uint64, err error) {
	state, err := rd.bus.StreamState(ctx, stream)
	if err != nil || state.Messages == 0 {
		return 0, 0, err
	}
	return state.FirstSeq, state.LastSeq, nil
}

// handedOut reads the queue messages of Lists.HandedOut, without their data.
func (rd reader) handedOut(ctx context.Context, at record.Location, class job.Class) ([]*nats.Msg, error) {
	info, err := rd.consumer(ctx, at.Endpoint, class)
	if err != nil || info.Out == 0 {
		return nil, err
	}
	got, _, err := rd.bus.Backwards(ctx, bus.Back{
		Stream: streams.Jobs(at.Endpoint), Filter: streams.ClassFilter(at.Endpoint, class),
		First: info.AckFloor.Stream + 1, Before: info.Delivered.Stream + 1, Most: min(info.Out, maxHandedOut),
	})
	readable := make([]*nats.Msg, 0, len(got))
	for _, m := range got {
		if _, err := parseQueued(at, m); err == nil { // as in parseAll
			readable = append(readable, m)
		}
	}
	return readable, err
}
