package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
)

var (
	// ErrGone is the cause of a LongPoll that ended because the client left; what
	// is answered then goes nowhere.
	ErrGone = errors.New("web: the client left")
	// ErrRevoked is the cause if the request ended because its key was revoked. It is
	// an ErrGone: what is answered goes nowhere, Auth answers 401.
	ErrRevoked = fmt.Errorf("%w: its key was revoked", ErrGone)
	// ErrStopping is the cause if the request ended because the server stops.
	ErrStopping = errors.New("web: the server is stopping")
)

// lookInterval is the pause between two looks at a waiting client's socket and
// its key.
const lookInterval = time.Second

// Gone reports whether the client closed the connection: Fiber does not tell.
// A connection that cannot be looked at counts as open.
func Gone(c *fiber.Ctx) bool { return gone(c.Context().Conn()) }

// LongPoll returns a context for a handler that waits. It ends after wait, when
// the client left, when the key that Auth let in is revoked, or when the server
// stops; context.Cause says which: context.DeadlineExceeded, ErrGone, ErrRevoked or
// ErrStopping. The handler must call
// release before it returns.
func LongPoll(c *fiber.Ctx, wait time.Duration) (ctx context.Context, release func()) {
	ctx, end := context.WithCancelCause(c.UserContext())
	timed, cancel := context.WithTimeout(ctx, wait)
	conn, stopping, by := c.Context().Conn(), c.Context().Done(), passOf(c)
	var wg sync.WaitGroup
	wg.Go(func() { look(timed, conn, by, stopping, end) })
	return timed, func() {
		cancel()
		end(context.Canceled)
		wg.Wait()
	}
}

// look ends the context when the client, its key or the server goes.
func look(ctx context.Context, conn net.Conn, by *pass, stopping <-chan struct{}, end context.CancelCauseFunc) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			switch {
			case gone(conn):
				end(ErrGone)
				return
			case by.lost(ctx):
				end(ErrRevoked)
				return
			}
		case <-stopping:
			end(ErrStopping)
			return
		case <-ctx.Done():
			return
		}
	}
}

// AnswerWithin bounds all of a request but its waiting, from the moment it was
// read: when JetStream is away, nobody hangs for longer than 5 s.
const AnswerWithin = 4500 * time.Millisecond

// RequestContext is the context of the calls that a request makes: it ends AnswerWithin
// after the request was read.
func RequestContext(c *fiber.Ctx) (context.Context, context.CancelFunc) {
	return RequestContextFor(c, 0)
}

// RequestContextFor is RequestContext for a request whose calls may take longer, since it
// brings much to store.
func RequestContextFor(c *fiber.Ctx, more time.Duration) (context.Context, context.CancelFunc) {
	return context.WithDeadline(c.UserContext(), readAt(c).Add(AnswerWithin+more))
}

// InTime is the handler h, whose context is the RequestContext.
func InTime(h func(ctx context.Context, c *fiber.Ctx) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		ctx, cancel := RequestContext(c)
		defer cancel()
		return h(ctx, c)
	}
}
