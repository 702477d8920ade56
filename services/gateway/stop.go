package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/retry"
)

const (
	// maxStopAge is how long a signal waits for its worker's poll: the pause
	// between two polls, and a while.
	maxStopAge = time.Minute
	// followIdleTimeout is how long an endpoint without polls is watched.
	followIdleTimeout = 2 * time.Minute
	tidyInterval      = 10 * time.Second
	// haltedTimeout bounds the read of a record.
	haltedTimeout = 2 * time.Second
)

// stopView is the answer that lists the jobs that a worker should stop.
type stopView struct {
	JobsToStop []job.ID `json:"jobsToStop"`
}

// stop lists for the worker the jobs that were cancelled, timed out, or otherwise
// lost, once there is one.
func (s *Service) stop(c *fiber.Ctx) error {
	who, err := s.poller(c)
	if err != nil {
		return err
	}
	p, release := s.hold(c, who)
	defer release()
	if who.gone {
		<-p.Done()
		return c.SendStatus(fiber.StatusNoContent)
	}
	if err := s.stopSignals.follow(who.endpoint); err != nil {
		return err
	}
	for {
		ids, more := s.stopSignals.take(who.endpoint.ID, who.worker)
		if ids = s.notHeld(c.UserContext(), who, ids); len(ids) > 0 {
			return c.JSON(stopView{ids})
		}
		select {
		case <-more:
		case <-p.Done():
			return c.SendStatus(fiber.StatusNoContent)
		}
	}
}

// notHeld leaves out jobs that the worker holds, or may hold: they were retried, and it has
// them again.
func (s *Service) notHeld(ctx context.Context, who caller, ids []job.ID) []job.ID {
	var lost []job.ID
	for _, id := range ids {
		if _, err := s.queue.Remote.LeaseOf(ctx, who.endpoint, id, who.worker); errors.Is(err, queue.ErrLost) {
			lost = append(lost, id)
		}
	}
	return lost
}

// stopSignals are the jobs that workers should stop. It is a cache of recent
// nudges: what it drops, or another instance got, the worker's next ping
// finds again.
type stopSignals struct {
	queue *queue.Queue
	log   *slog.Logger

	mu       sync.Mutex
	followed map[string]*followed // by endpoint
	waiting  map[inbox]chan struct{}
	pending  map[inbox]map[job.ID]time.Time // since when
	over     bool
}

type inbox struct{ endpoint, worker string }

type followed struct {
	stop func()
	last time.Time // somebody asked
}

func newStopSignals(q *queue.Queue, log *slog.Logger) *stopSignals {
	return &stopSignals{
		queue: q, log: log, followed: map[string]*followed{},
		waiting: map[inbox]chan struct{}{}, pending: map[inbox]map[job.ID]time.Time{},
	}
}

// follow watches the endpoint's jobs from now on, for as long as it is called
// again within followIdleTimeout.
func (s *stopSignals) follow(e endpoint.Endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.followed[e.ID]; f != nil {
		f.last = time.Now()
		return nil
	}
	if s.over {
		return nil
	}
	stop, err := s.queue.Remote.OnNudge(e, func(id job.ID) { s.nudged(e, id) })
	if err != nil {
		return err
	}
	s.followed[e.ID] = &followed{stop: stop, last: time.Now()}
	return nil
}

// nudged checks a job whose record was written.
func (s *stopSignals) nudged(e endpoint.Endpoint, id job.ID) {
	ctx, cancel := context.WithTimeout(context.Background(), haltedTimeout)
	defer cancel()
	worker, err := s.queue.Remote.StoppedWorker(ctx, e, id)
	if err != nil {
		s.log.DebugContext(ctx, "job not looked at, the worker's ping will tell", "endpoint", e.ID, "job", id, "err", err)
		return
	}
	if worker != "" {
		s.add(e.ID, worker, id)
	}
}

// add has the worker stop the job.
func (s *stopSignals) add(endpointID, worker string, id job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := inbox{endpointID, worker}
	if s.pending[at] == nil {
		s.pending[at] = map[job.ID]time.Time{}
	}
	s.pending[at][id] = time.Now()
	if waiting := s.waiting[at]; waiting != nil {
		close(waiting)
		delete(s.waiting, at)
	}
}

// take returns the jobs that the worker should stop, once, and a channel that is
// closed when there is a further one.
func (s *stopSignals) take(endpointID, worker string) (ids []job.ID, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := inbox{endpointID, worker}
	for id := range s.pending[at] {
		ids = append(ids, id)
	}
	delete(s.pending, at)
	if s.waiting[at] == nil {
		s.waiting[at] = make(chan struct{})
	}
	return ids, s.waiting[at]
}

// run expires old signals until ctx ends.
func (s *stopSignals) run(ctx context.Context) error {
	for retry.Sleep(ctx, tidyInterval) == nil {
		s.tidy(time.Now(), false)
	}
	s.tidy(time.Now(), true)
	return nil
}

func (s *stopSignals) tidy(now time.Time, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = over
	for id, f := range s.followed {
		if over || now.Sub(f.last) > followIdleTimeout {
			f.stop()
			delete(s.followed, id)
		}
	}
	for at, waiting := range s.waiting {
		close(waiting) // those who still wait ask again
		delete(s.waiting, at)
	}
	for at, ids := range s.pending {
		maps.DeleteFunc(ids, func(_ job.ID, since time.Time) bool { return now.Sub(since) > maxStopAge })
		if len(ids) == 0 {
			delete(s.pending, at)
		}
	}
}
