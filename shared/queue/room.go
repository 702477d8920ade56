package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/retry"
	"flightline/streams"
)

// ErrFull is what every FullError unwraps to.
var ErrFull = errors.New("queue: full")

// FullError means that the jobs that wait or run are as many, or take as many
// bytes, as an endpoint or the quota of a key allows. The job was not accepted.
type FullError struct {
	// Endpoint whose queue is full; "" if it is the quota of the caller's key, at
	// all endpoints together.
	Endpoint string
	// Field names the bound: maxQueueBytes or maxQueueJobs of an endpoint,
	// waitingBytes or waitingJobs of a quota.
	Field string
	// Size is that of the job's input in bytes, or 1 job; Used is what waits or runs,
	// and Limit the value of Field, in the same unit.
	Size, Used, Limit int64
}

func (e *FullError) Error() string {
	switch e.Field {
	case fieldWaitingBytes:
		return fmt.Sprintf("too many bytes waiting: the jobs of this key that wait or run have %d, the job has %d, and the key's quota %s is %d", e.Used, e.Size, e.Field, e.Limit)
	case fieldWaitingJobs:
		return fmt.Sprintf("too many jobs waiting: this key has %d that wait or run, and its quota %s is %d", e.Used, e.Field, e.Limit)
	case fieldQueueJobs:
		return fmt.Sprintf("the queue of endpoint %s is full: it holds %d jobs, and %s is %d", e.Endpoint, e.Used, e.Field, e.Limit)
	}
	return fmt.Sprintf("the queue of endpoint %s is full: it holds %d bytes, the job has %d, and %s is %d", e.Endpoint, e.Used, e.Size, e.Field, e.Limit)
}

// Unwrap makes errors.Is(err, ErrFull) hold.
func (e *FullError) Unwrap() error { return ErrFull }

// The bounds of an endpoint's queue, as the API names them.
const (
	fieldQueueBytes = "maxQueueBytes"
	fieldQueueJobs  = "maxQueueJobs"
)

const (
	// measureInterval is the pause between two rounds of measurements.
	measureInterval = time.Second
	// minMeasureAge is how old a measurement gets before a refusal asks for a new one.
	minMeasureAge = 100 * time.Millisecond
	// crowdedMeasureAge is how old the measurement of a queue gets that is more
	// than half full, if no job is submitted.
	crowdedMeasureAge = 5 * time.Second
	// maxMeasureAge is how old a measurement of a queue gets while jobs come and
	// less than half of the limit is used.
	maxMeasureAge = 30 * time.Second
	// maxRefusalAge is how old a measurement may be for a submission to be refused
	// by it: the server no longer answers, and jobs may have ended.
	maxRefusalAge = 10 * time.Second
)

// load is an amount of jobs.
type load struct{ bytes, jobs int64 }

func (l load) plus(o load) load { return load{l.bytes + o.bytes, l.jobs + o.jobs} }

func (l load) minus(o load) load { return load{l.bytes - o.bytes, l.jobs - o.jobs} }

// over reports whether l is more than one of so many parts of limit.
func (l load) over(limit load, parts int64) bool {
	return l.bytes > limit.bytes/parts || l.jobs > limit.jobs/parts
}

// usageTable has how much the queues hold that this process submits to, and how
// much of that each key submitted. A queue is measured in the background: a submission
// is compared with the last measurement and what this process accepted since.
type usageTable struct {
	read     reader
	log      *slog.Logger
	mu       sync.Mutex
	of       map[string]*queueUsage
	keys     map[string]*keyUse // those with something in a history
	answered time.Time          // when queues were last measured, or none was due
	// measuring has one measurement of a queue at a time.
	measuring singleflight.Group
}

type queueUsage struct {
	at       record.Location
	limit    load
	measured time.Time // when used was true; zero if never
	used     load
	asked    int64 // submissions since then, refused ones too
	accepted load  // of those accepted
	history  history
}

// due reports whether a queue has to be measured: as soon as there are jobs,
// often while it is half full, and seldom otherwise.
func (r *queueUsage) due(now time.Time) bool {
	age := now.Sub(r.measured)
	crowded := r.used.plus(r.accepted).over(r.limit, 2)
	if r.asked == 0 {
		return crowded && age >= crowdedMeasureAge
	}
	return crowded || r.measured.IsZero() || age >= maxMeasureAge || r.accepted.over(r.limit, 10)
}

// full returns a *FullError if there is no room for size.
func (r *queueUsage) full(size load) error {
	used := r.used.plus(r.accepted)
	switch after := used.plus(size); {
	case after.bytes > r.limit.bytes:
		return &FullError{Endpoint: r.at.Endpoint, Field: fieldQueueBytes, Size: size.bytes, Used: used.bytes, Limit: r.limit.bytes}
	case after.jobs > r.limit.jobs:
		return &FullError{Endpoint: r.at.Endpoint, Field: fieldQueueJobs, Size: size.jobs, Used: used.jobs, Limit: r.limit.jobs}
	}
	return nil
}

// reserve counts a submission of so many bytes, or returns a *FullError. unanswered: the
// server does not measure the queue now, so an old measurement refuses nothing.
func (s *usageTable) reserve(e endpoint.Endpoint, bytes int64, by job.Caller, unanswered bool, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.usageOf(e)
	r.asked++
	size := load{bytes, 1}
	if !unanswered || now.Sub(r.measured) < maxRefusalAge {
		if err := r.full(size); err != nil {
			return err
		}
	}
	if err := s.admitKey(r, by, size, now); err != nil {
		return err
	}
	r.accepted = r.accepted.plus(size)
	return nil
}

// usageOf returns the usage of an endpoint's queue, made if it is new, with the
// endpoint's present limits; mu must be held.
func (s *usageTable) usageOf(e endpoint.Endpoint) *queueUsage {
	if s.of == nil {
		s.of, s.keys = map[string]*queueUsage{}, map[string]*keyUse{}
	}
	r := s.of[e.ID]
	if r == nil {
		r = &queueUsage{at: record.LocationOf(e)}
		s.of[e.ID] = r
	}
	r.limit = load{e.QueueBytesLimit(), e.QueueJobsLimit()}
	return r
}

// run measures the queues that are due until ctx ends.
func (s *usageTable) run(ctx context.Context) error {
	for retry.Sleep(ctx, measureInterval) == nil {
		due := s.due(time.Now())
		answered := len(due) == 0
		for _, id := range due {
			answered = s.measure(ctx, id) || answered
		}
		if answered {
			s.wasAnswered(time.Now())
		}
	}
	return nil
}

// due are the endpoints whose queues have to be measured.
func (s *usageTable) due(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	near := s.near()
	var due []string
	for id, r := range s.of {
		if r.due(now) || r.dueFor(near, now) {
			due = append(due, id)
		}
	}
	return due
}

// measuredAt is when the endpoint's queue was last measured.
func (s *usageTable) measuredAt(endpointID string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.of[endpointID]; r != nil {
		return r.measured
	}
	return time.Time{}
}

func (s *usageTable) wasAnswered(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = now
}

// admit counts a submission of so many bytes, or returns a *FullError. A queue is
// measured before it refuses a job, unless that was done just now: jobs may have
// ended since the last measurement.
func (s *usageTable) admit(ctx context.Context, e endpoint.Endpoint, bytes int64, by job.Caller) error {
	err := s.reserve(e, bytes, by, false, time.Now())
	full, isFull := errors.AsType[*FullError](err)
	if !isFull || full.Endpoint == "" || time.Since(s.measuredAt(e.ID)) < minMeasureAge {
		return err
	}
	answered := s.measure(ctx, e.ID)
	return s.reserve(e, bytes, by, !answered, time.Now())
}

// measure asks the server, and reports whether it answered. Without an answer
// the last measurement stands. Calls for one endpoint at the same time share an
// answer.
func (s *usageTable) measure(ctx context.Context, endpointID string) (answered bool) {
	got, _, _ := s.measuring.Do(endpointID, func() (any, error) {
		return s.measureOnce(context.WithoutCancel(ctx), endpointID), nil
	})
	return got.(bool) //nolint:forcetypeassert // it is
}

func (s *usageTable) measureOnce(ctx context.Context, endpointID string) (answered bool) {
	ctx, cancel := context.WithTimeout(ctx, bus.CallTimeout)
	defer cancel()
	s.mu.Lock()
	r := s.of[endpointID]
	if r == nil { // the endpoint is gone
		s.mu.Unlock()
		return true
	}
	before := *r
	s.mu.Unlock()
	got, err := s.read.measure(ctx, before.at)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, bus.ErrNoMessage): // the endpoint is gone
		r.history.trim(0, time.Time{}, s.drop)
		delete(s.of, endpointID)
		return true
	case err != nil:
		s.log.DebugContext(ctx, "queue not measured", "endpoint", endpointID, "err", err)
		return false
	}
	r.used, r.measured = got.used, time.Now()
	r.asked -= before.asked
	r.accepted = r.accepted.minus(before.accepted)
	r.history.trim(r.used.jobs+r.accepted.jobs, got.first, s.drop)
	return true
}

// measurement is how a queue is.
type measurement struct {
	used load
	// first is a time by the local clock; what was accepted before has ended.
	first time.Time
}

// submitTimeout is longer than it takes from the acceptance of a job until the
// server has it.
const submitTimeout = bus.CallTimeout + time.Second

// ErrNoSpace is what every SpaceError unwraps to.
var ErrNoSpace = errors.New("queue: no space")

// SpaceError means that the storage is nearly full: what is left is kept for jobs
// that were accepted. The job was not accepted.
type SpaceError struct {
	// Shortage says what is left and what is kept (storehealth.Space).
	Shortage string
}

func (e *SpaceError) Error() string {
	return "the storage is nearly full: " + e.Shortage + "; try again later"
}

// Unwrap makes errors.Is(err, ErrNoSpace) hold.
func (e *SpaceError) Unwrap() error { return ErrNoSpace }

// measure counts an endpoint's queue messages, one for each job that waits or
// runs, and what they and the inputs beside them take. The latter are counted,
// and taken to be as large as the partition's payloads on average.
func (rd reader) measure(ctx context.Context, at record.Location) (measurement, error) {
	queued, err := rd.bus.StreamState(ctx, streams.Jobs(at.Endpoint))
	if err != nil {
		return measurement{}, err
	}
	m := measurement{used: load{queued.Bytes, queued.Messages}}
	if queued.Messages > 0 {
		m.first = time.Now().Add(rd.bus.Until(queued.FirstTime) - submitTimeout)
	}
	parts, err := rd.inputParts(ctx, at)
	if err != nil || parts == 0 {
		return m, err
	}
	payloads, err := rd.bus.StreamState(ctx, streams.Payloads(at.Partition))
	if err != nil {
		return measurement{}, err
	}
	m.used.bytes += payloads.Bytes / max(1, payloads.Messages) * parts
	return m, nil
}

// inputParts counts the messages that hold inputs beside an endpoint's queue.
func (rd reader) inputParts(ctx context.Context, at record.Location) (int64, error) {
	first, err := rd.bus.BatchGet(ctx, streams.Payloads(at.Partition),
		bus.Batch{Filter: streams.InputFilter(at.Partition, at.Endpoint), Most: 1, MaxBytes: 1})
	if err != nil || len(first) == 0 {
		return 0, err
	}
	more, err := strconv.ParseInt(first[0].Header.Get(bus.PendingHeader), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count inputs of %s: %w", at.Endpoint, err)
	}
	return 1 + more, nil
}
