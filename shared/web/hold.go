package web

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
)

var (
	// ErrGone is the cause of a Hold that ended because the client left; what
	// is answered then goes nowhere.
	ErrGone = errors.New("web: the client left")
	// ErrStopping is the cause of one that ended because the server stops.
	ErrStopping = errors.New("web: the server is stopping")
)

// lookEvery is the pause between two looks at a waiting client's socket.
const lookEvery = time.Second

// Gone reports whether the client closed the connection: Fiber does not tell.
// A connection that cannot be looked at counts as open.
func Gone(c *fiber.Ctx) bool { return gone(c.Context().Conn()) }

// Hold returns a context for a handler that waits. It ends after wait, when
// the client left, or when the server stops; context.Cause says which:
// context.DeadlineExceeded, ErrGone or ErrStopping. The handler must call
// release before it returns.
func Hold(c *fiber.Ctx, wait time.Duration) (ctx context.Context, release func()) {
	ctx, end := context.WithCancelCause(c.UserContext())
	timed, cancel := context.WithTimeout(ctx, wait)
	conn, stopping := c.Context().Conn(), c.Context().Done()
	var wg sync.WaitGroup
	wg.Go(func() { look(timed, conn, stopping, end) })
	return timed, func() {
		cancel()
		end(context.Canceled)
		wg.Wait()
	}
}

// look ends the context when the client or the server goes.
func look(ctx context.Context, conn net.Conn, stopping <-chan struct{}, end context.CancelCauseFunc) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if gone(conn) {
				end(ErrGone)
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
