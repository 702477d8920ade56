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
	// ErrGone is the cause of a Hold that ended because the client left; what
	// is answered then goes nowhere.
	ErrGone = errors.New("web: the client left")
	// ErrRevoked is the cause of one that ended because its key was revoked. It is
	// an ErrGone: what is answered goes nowhere, Auth answers 401.
	ErrRevoked = fmt.Errorf("%w: its key was revoked", ErrGone)
	// ErrStopping is the cause of one that ended because the server stops.
	ErrStopping = errors.New("web: the server is stopping")
)

// lookInterval is the pause between two looks at a waiting client's socket and
// its key.
const lookInterval = time.Second

// Gone reports whether the client closed the connection: Fiber does not tell.
// A connection that cannot be looked at counts as open.
func Gone(c *fiber.Ctx) bool { return gone(c.Context().Conn()) }

// Hold returns a context for a handler that waits. It ends after wait, when
// the client left, when the key that Auth let in is revoked, or when the server
// stops; context.Cause says which: context.DeadlineExceeded, ErrGone, ErrRevoked or
// ErrStopping. The handler must call
// release before it returns.
func Hold(c *fiber.Ctx, wait time.Duration) (ctx context.Context, release func()) {
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
