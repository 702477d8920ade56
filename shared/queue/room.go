package queue

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"flightline/shared/endpoint"
	"flightline/shared/job"
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
	// than half full, if nobody submits.
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

// rooms knows how much the queues hold that this process submits to, and which of
// that which key submitted. A queue is measured in the background: a submission
// is compared with the last measurement and what this process accepted since.
type rooms struct {
	mu       sync.Mutex
	of       map[string]*room
	keys     map[string]*keyUse // those with something in a history
	answered time.Time          // when queues were last measured, or none was due
	// measuring has one measurement of a queue at a time.
	measuring singleflight.Group
}

type room struct {
	at       place
	limit    load
	measured time.Time // when used was true; zero if never
	used     load
	asked    int64 // submissions since then, refused ones too
	accepted load  // of those accepted
	history  history
}

// due reports whether a queue has to be measured: as soon as there are jobs,
// often while it is half full, and seldom otherwise.
func (r *room) due(now time.Time) bool {
	age := now.Sub(r.measured)
	crowded := r.used.plus(r.accepted).over(r.limit, 2)
	if r.asked == 0 {
		return crowded && age >= crowdedMeasureAge
	}
	return crowded || r.measured.IsZero() || age >= maxMeasureAge || r.accepted.over(r.limit, 10)
}

// full returns a *FullError if there is no room for size.
func (r *room) full(size load) error {
	used := r.used.plus(r.accepted)
	switch after := used.plus(size); {
	case after.bytes > r.limit.bytes:
		return &FullError{Endpoint: r.at.endpoint, Field: fieldQueueBytes, Size: size.bytes, Used: used.bytes, Limit: r.limit.bytes}
	case after.jobs > r.limit.jobs:
		return &FullError{Endpoint: r.at.endpoint, Field: fieldQueueJobs, Size: size.jobs, Used: used.jobs, Limit: r.limit.jobs}
	}
	return nil
}

// admit counts a submission of so many bytes, or returns a *FullError.
func (s *rooms) admit(e endpoint.Endpoint, bytes int64, by job.Caller, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.room(e)
	r.asked++
	size := load{bytes, 1}
	if now.Sub(r.measured) < maxRefusalAge {
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

// room returns that of an endpoint, with its limits of now; mu must be held.
func (s *rooms) room(e endpoint.Endpoint) *room {
	if s.of == nil {
		s.of, s.keys = map[string]*room{}, map[string]*keyUse{}
	}
	r := s.of[e.ID]
	if r == nil {
		r = &room{at: placeOf(e)}
		s.of[e.ID] = r
	}
	r.limit = load{e.QueueBytes(), e.QueueJobs()}
	return r
}
