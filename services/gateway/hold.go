package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/shared/web"
)

const (
	// closedHold is how long a poll is held of a worker that gets no more jobs:
	// short, for it may wait to end, yet no busy loop.
	closedHold = time.Second
	// connectionCheckInterval is the pause between two looks whether a worker that polls may
	// still be given jobs.
	connectionCheckInterval = 200 * time.Millisecond
)

// isNotFound distinguishes what is not there from what could not be asked.
func isNotFound(err error) bool {
	return errors.Is(err, registry.ErrNotFound) || errors.Is(err, endpoint.ErrNotFound)
}

// poll is a request that is held.
type poll struct {
	// Context ends when the poll is to be answered for whatever reason.
	context.Context //nolint:containedctx // it lives as long as the request
	// closed means that the worker is to be given nothing.
	closed bool
	began  time.Time // server time
}

// hold begins a poll. It ends early when the worker is to get no more jobs.
// The handler must call release before it returns.
func (s *Service) hold(c *fiber.Ctx, who caller) (p *poll, release func()) {
	p = &poll{began: s.queue.Now()}
	s.removeNote(c.UserContext(), who, who.left)
	wait := s.cfg.Hold
	if p.closed = who.gone || !s.open(c.UserContext(), who, p.began); p.closed {
		wait = min(wait, closedHold)
	}
	held, letGo := web.LongPoll(c, wait)
	end := func() {
		cause := context.Cause(held)
		if errors.Is(cause, web.ErrGone) || errors.Is(cause, context.DeadlineExceeded) && web.Gone(c) {
			s.noteLeft(context.WithoutCancel(held), who)
		}
		letGo()
	}
	if p.closed {
		p.Context = held
		return p, end
	}
	ctx, cancel := context.WithCancel(held)
	p.Context = ctx
	stopLooking := s.look(ctx, who, p.began, cancel)
	return p, func() {
		stopLooking()
		cancel()
		end()
	}
}

// look calls end once the worker is to get no more jobs, and removes the note that it
// left an earlier poll. It costs a timer, and a goroutine only for as long as a look
// takes.
func (s *Service) look(ctx context.Context, who caller, began time.Time, end func()) (stop func()) {
	var next *time.Timer
	ready := make(chan struct{})
	next = time.AfterFunc(connectionCheckInterval, func() {
		<-ready
		if ctx.Err() != nil {
			return
		}
		token, open := s.openToken(ctx, who, began)
		if !open {
			end()
			return
		}
		s.removeNote(ctx, who, token.Disconnected)
		next.Reset(connectionCheckInterval)
	})
	close(ready)
	return func() { next.Stop() }
}
