package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/errgroup"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
)

const (
	// maxPinged bounds the jobs of one ping: those that a worker may hold, and those that it
	// took since its last ping.
	maxPinged = 2 * maxHeld
	// maxConcurrentHeartbeats bounds the jobs of a ping whose leases are extended side by side.
	maxConcurrentHeartbeats = 8
	// servedKnownTimeout is how long it is remembered when a worker last had a job:
	// the longest idleTimeout.
	servedKnownTimeout = time.Hour
)

// ping extends the leases of the jobs it names, and says that the worker lives.
func (s *Service) ping(c *fiber.Ctx) error {
	who, err := s.caller(c)
	if err != nil {
		return err
	}
	if who.gone {
		return c.JSON(ok)
	}
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	ids := pinged(query(c, "job_id"))
	if s.hasLeft(ctx, who, ids) {
		return c.JSON(ok)
	}
	s.named.set(who.key(), ids, time.Now(), who.endpoint.Lease)
	if err := s.stopSignals.follow(who.endpoint); err != nil {
		return err
	}
	self := registry.Worker{
		ID: who.worker, Endpoint: who.endpoint.ID, State: registry.WorkerIdle,
		Host: registry.Host{Version: pingText(c, "runpod_version")},
	}
	unhealthy := query(c, "status") == registry.WorkerUnhealthy
	self.Running, self.Stale, err = s.extendLeases(ctx, who, ids)
	switch {
	case unhealthy:
		self.State = registry.WorkerUnhealthy
		s.log.WarnContext(ctx, "worker says that it is unhealthy", "endpoint", who.endpoint.ID, "worker", who.worker,
			"check", pingText(c, "check"), "reason", pingText(c, "reason"))
	case len(self.Running)+len(self.Stale) > 0:
		self.State = registry.WorkerRunning
	}
	self.Concurrency = max(1, len(self.Running))
	if now := time.Now(); len(self.Running) == 0 {
		if at, known := s.served.last(who.key(), now); known {
			self.Rested = now.Sub(at)
		}
	}
	if beat := s.registry.Workers.Beat(ctx, self); beat != nil {
		s.log.DebugContext(ctx, "worker not registered", "endpoint", who.endpoint.ID, "worker", who.worker, "err", beat)
	} else {
		s.recordPod(ctx, who, self.Host.Version)
	}
	if err != nil {
		return err
	}
	return c.JSON(ok)
}

// maxPingText is how many bytes are kept of a text in a ping. The SDK sends 256
// characters at most.
const maxPingText = 1 << 10

// pingText is a text of a ping, of which the beginning is kept.
func pingText(c *fiber.Ctx, name string) string {
	return job.Cut(query(c, name), maxPingText)
}

// pinged are the jobs that a ping names.
func pinged(list string) []job.ID {
	var ids []job.ID
	for text := range strings.SplitSeq(list, ",") {
		if id := job.ID(strings.TrimSpace(text)); id.Valid() && len(ids) < maxPinged {
			ids = append(ids, id)
		}
	}
	return ids
}

// extendLeases extends the worker's leases and returns the jobs that it holds, and those
// that it does not hold and goes on with.
func (s *Service) extendLeases(ctx context.Context, who caller, ids []job.ID) (running, stale []string, err error) {
	held, goesOn := make([]bool, len(ids)), make([]bool, len(ids))
	var g errgroup.Group
	g.SetLimit(maxConcurrentHeartbeats)
	for i, id := range ids {
		g.Go(func() error {
			err := s.queue.Remote.Heartbeat(ctx, who.endpoint, id, who.worker)
			held[i] = err == nil || !errors.Is(err, queue.ErrLost)
			if lost, ok := errors.AsType[*queue.NotHeldError](err); ok {
				goesOn[i] = s.stopLost(who, id, lost)
				return nil
			}
			return err
		})
	}
	err = g.Wait()
	for i, id := range ids {
		switch {
		case held[i]:
			running = append(running, string(id))
		case goesOn[i]:
			stale = append(stale, string(id))
		}
	}
	return running, stale, err
}

// stopLost makes the worker stop a job that it has lost, and goes on with, unless it has
// just ended it itself.
func (s *Service) stopLost(who caller, id job.ID, e *queue.NotHeldError) (goesOn bool) {
	switch own := e.Worker == who.worker; {
	case own && e.Status == job.Completed:
		return false
	case own && e.Status == job.Failed: // perhaps for a chunk, while its handler goes on
		s.queue.Remote.Nudge(who.endpoint, id)
	default:
		s.stopJob(who, id)
	}
	return true
}

// stopJob makes the worker stop a job. Its poll may be held by another instance.
func (s *Service) stopJob(who caller, id job.ID) {
	s.stopSignals.add(who.endpoint.ID, who.worker, id)
	s.queue.Remote.Nudge(who.endpoint, id)
}
