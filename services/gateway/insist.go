package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// againAfter is the pause before that is repeated which JetStream did not
// answer.
const againAfter = 250 * time.Millisecond

// isAway tells that JetStream did not answer.
func isAway(err error) bool {
	return errors.Is(err, queue.ErrUnavailable) || errors.Is(err, registry.ErrUnavailable)
}

// insist repeats once while JetStream does not answer, for as long as a poll
// may be held, and until the server stops.
func (s *Service) insist(c *fiber.Ctx, once func() error) error {
	err := once()
	if !isAway(err) {
		return err
	}
	held, release := web.Hold(c, s.cfg.Hold)
	defer release()
	for isAway(err) {
		s.counts.insisted.Add(1)
		select {
		case <-held.Done():
			return err
		case <-time.After(againAfter):
			err = once()
		}
	}
	return err
}

// poster is caller for a post. A worker posts again only after a 5xx, within
// 5 s, and then forgets what it had to say.
func (s *Service) poster(c *fiber.Ctx) (who caller, err error) {
	err = s.insist(c, func() error {
		who, err = s.caller(c)
		return err
	})
	return who, err
}

// write takes the worker's lease up, and writes what it says of the job. The
// repetitions are of one lease, which knows its own write if only the answer
// was lost. After a 5xx nobody would: a chunk that had been stored would be
// stored once more. It returns endpoint.ErrNotFound if the endpoint is gone,
// and what Held and that return.
func (s *Service) write(c *fiber.Ctx, who caller, id job.ID, that func(context.Context, *queue.Lease) error) error {
	if who.gone {
		return endpoint.ErrNotFound
	}
	var lease *queue.Lease
	ctx := c.UserContext() // 20 MB may take their time; each call has its own bound
	return s.insist(c, func() (err error) {
		if lease == nil {
			if lease, err = s.queue.Held(ctx, who.endpoint, id, who.worker); err != nil {
				return err
			}
		}
		return that(ctx, lease)
	})
}
