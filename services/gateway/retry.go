package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/retry"
	"flightline/shared/web"
)

// retryDelay is the pause before a call is repeated that JetStream did not
// answer.
const retryDelay = 250 * time.Millisecond

// retry repeats call while JetStream does not answer, for as long as a poll may
// be held, and until the server stops.
func (s *Service) retry(c *fiber.Ctx, call func() error) error {
	err := call()
	if !errors.Is(err, bus.ErrUnavailable) {
		return err
	}
	held, release := web.LongPoll(c, s.cfg.Hold)
	defer release()
	for errors.Is(err, bus.ErrUnavailable) {
		s.counts.retried.Add(1)
		if retry.Sleep(held, retryDelay) != nil {
			return err
		}
		err = call()
	}
	return err
}

// poster is caller for a post. A worker posts again only after a 5xx, within
// 5 s, and then forgets what it had to say.
func (s *Service) poster(c *fiber.Ctx) (who caller, err error) {
	err = s.retry(c, func() error {
		who, err = s.caller(c)
		return err
	})
	return who, err
}

// write calls do with the worker's lease. All retries use one lease, which
// recognises its own write if only the answer was lost; after a 5xx, a chunk
// that was stored would be stored twice. It returns endpoint.ErrNotFound if the
// endpoint is gone, and the errors of Held and do.
func (s *Service) write(c *fiber.Ctx, who caller, id job.ID, do func(context.Context, *queue.Lease) error) error {
	if who.gone {
		return endpoint.ErrNotFound
	}
	var lease *queue.Lease
	ctx := c.UserContext() // 20 MB may take their time; each call has its own bound
	return s.retry(c, func() (err error) {
		if lease == nil {
			if lease, err = s.queue.Remote.LeaseOf(ctx, who.endpoint, id, who.worker); err != nil {
				return err
			}
		}
		return do(ctx, lease)
	})
}
