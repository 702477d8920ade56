package gateway

import (
	"context"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/retry"
	"flightline/shared/web"
)

const (
	// maxBatch bounds what one poll may take, and maxBatchBytes its inputs: when they are
	// more, it takes no further job.
	maxBatch, maxBatchBytes = 100, 32 << 20
	// maxHeld is how many jobs a worker may hold. A ping has room for about 1600.
	maxHeld = 1000
	// nextTimeout is how long a batch that has a job waits for another one: a
	// low-priority job is asked for after 20 ms.
	nextTimeout = 40 * time.Millisecond
	// giveBackTimeout bounds giving a job back.
	giveBackTimeout = 4 * time.Second
)

// take hands out one job, as an object.
func (s *Service) take(c *fiber.Ctx) error { return s.handOut(c, 1, false) }

// takeBatch hands out up to batch_size jobs, as an array.
func (s *Service) takeBatch(c *fiber.Ctx) error {
	n, err := strconv.Atoi(query(c, "batch_size"))
	if err != nil {
		n = 1
	}
	return s.handOut(c, max(1, min(n, maxBatch)), true)
}

// handOut answers with jobs, or with 204 if none came in time.
func (s *Service) handOut(c *fiber.Ctx, most int, batch bool) error {
	who, err := s.poller(c)
	if err != nil {
		return err
	}
	p, release := s.hold(c, who)
	defer release()
	if p.closed {
		<-p.Done()
		return c.SendStatus(fiber.StatusNoContent)
	}
	free := s.free(who)
	if free == 0 {
		_ = retry.Sleep(p, closedHold) // the end of p is seen by the answer
		return c.SendStatus(fiber.StatusNoContent)
	}
	taken := s.collect(c, p, who, min(most, free))
	if len(taken) == 0 {
		return c.SendStatus(fiber.StatusNoContent)
	}
	s.served.add(who.key(), time.Now())
	s.deliver(c, who, taken, batch)
	return nil
}

// free is how many more jobs the worker may hold, as its last ping says, here or at another
// instance.
func (s *Service) free(who caller) int {
	if held, known := s.named.count(who.key(), time.Now()); known {
		return max(0, maxHeld-held)
	}
	last := s.registry.Workers.Last(who.endpoint.ID, who.worker)
	if last.Silent() {
		return maxHeld
	}
	return max(0, maxHeld-len(last.Worker.Running))
}

// stillRuns reports whether the worker says that it runs an earlier run of the job, in its
// last ping here or at another instance.
func (s *Service) stillRuns(who caller, id job.ID) bool {
	if runs, known := s.named.has(who.key(), id, time.Now()); known {
		return runs
	}
	last := s.registry.Workers.Last(who.endpoint.ID, who.worker)
	return !last.Silent() && slices.Contains(last.Worker.Stale, string(id))
}

// collect waits for a first job, and takes what else is there at once.
func (s *Service) collect(c *fiber.Ctx, p *poll, who caller, most int) []*queue.Lease {
	consumer := s.queue.Remote.Consume(who.endpoint, who.worker, s.cfg.Confirm)
	defer consumer.Close()
	// A job is given to a worker that is there and may have it, so look just before.
	stillWanted := func() bool {
		return p.Err() == nil && !web.Gone(c) && s.open(p, who, p.began)
	}
	alreadyRuns := func(id job.ID) bool { return s.stillRuns(who, id) }
	var taken []*queue.Lease
	size := 0
	// A large input without room is left to who has it.
	ctx := queue.WithPayloadClaim(p, func(bytes int) error { return web.ClaimAnswer(c, size+bytes) })
	for len(taken) < most && size < maxBatchBytes {
		lease, err := nextOf(ctx, consumer, stillWanted, alreadyRuns, len(taken) > 0)
		if err != nil {
			break // no job, and no worker waits any longer
		}
		taken = append(taken, lease)
		s.named.add(who.key(), lease.Job.ID)
		size += len(lease.Input)
		if lease.Unreceived() { // perhaps its worker cannot read it
			break
		}
	}
	return taken
}

func nextOf(ctx context.Context, consumer *queue.Consumer, stillWanted func() bool, alreadyRuns func(job.ID) bool, inBatch bool) (*queue.Lease, error) {
	if inBatch {
		within, cancel := context.WithTimeout(ctx, nextTimeout)
		defer cancel()
		ctx = within
	}
	return consumer.NextIf(ctx, stillWanted, alreadyRuns, inBatch)
}

// sentPart is how much of an answer is written before the jobs are kept for the worker that
// is still receiving it. At 16 KB/s, the least rate for large answers, it takes 4 s.
const sentPart = web.SmallBody

// deliver writes the jobs to the socket. If the worker has left before all is
// written, they go back into the queue at once, and no worker is lost. While the worker
// takes a large answer, they stay its own.
func (s *Service) deliver(c *fiber.Ctx, who caller, taken []*queue.Lease, batch bool) {
	rest, written := document(taken, batch), false
	for _, lease := range taken {
		lease.Input = nil // the body has it, perhaps for as long as a slow worker reads
	}
	large := len(rest) > sentPart
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	next := func() ([]byte, error) {
		if large {
			for _, lease := range taken {
				lease.Receiving()
			}
		}
		if len(rest) == 0 {
			written = true // nobody asks again unless it is
			return nil, io.EOF
		}
		part := rest[:min(len(rest), sentPart)]
		rest = rest[len(part):]
		return part, nil
	}
	ctx := context.WithoutCancel(c.UserContext())
	web.Stream(c, next, func() {
		if !written {
			s.giveBack(ctx, who, taken)
		}
	})
}

func (s *Service) giveBack(ctx context.Context, who caller, taken []*queue.Lease) {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	for _, lease := range taken {
		s.named.remove(who.key(), lease.Job.ID)
		err := lease.Release(ctx) // else its time to be confirmed runs out
		s.log.InfoContext(ctx, "job given back, its worker left before it had it", "endpoint", lease.Job.Endpoint, "job", lease.Job.ID, "worker", lease.Job.Worker, "err", err)
	}
}
