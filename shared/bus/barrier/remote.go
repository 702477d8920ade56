package barrier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"
)

// ServerName is the name of a server beside which a barrier is served. So a client knows
// that there is one from its connection on, also before it is served.
const ServerName = "flightline-barrier"

const (
	// askTimeout bounds one request; a caller may have time for several.
	askTimeout = 1500 * time.Millisecond
	// maxServed bounds the requests that are worked on at the same time. They
	// only wait, so it is not about speed.
	maxServed = 1024
)

// answerDone is what Serve answers for a stream that is on the disk; else the text of an
// error.
const answerDone = ""

// Serve lets other processes wait at the barrier sync, over core NATS at
// prefix plus the name of a stream, until ctx ends; then it returns nil once
// all that it works on is answered. A nil sync lets those through who once knew
// a barrier: the server's own setting decides then.
func Serve(ctx context.Context, nc *nats.Conn, prefix string, sync Func) error {
	sub, err := nc.SubscribeSync(prefix + "*")
	if err != nil {
		return fmt.Errorf("serve barrier: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is gone then, and with it the subscription
	var g errgroup.Group
	g.SetLimit(maxServed)
	defer g.Wait() //nolint:errcheck // answering returns no error
	for {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrSlowConsumer):
			continue // those whose request was dropped ask again
		case err != nil:
			return fmt.Errorf("serve barrier: %w", err)
		}
		g.Go(func() error {
			// Who asked gives up if no answer comes, so a failed one is no news.
			_ = m.Respond([]byte(answer(ctx, sync, strings.TrimPrefix(m.Subject, prefix))))
			return nil
		})
	}
}

func answer(ctx context.Context, sync Func, stream string) string {
	if sync == nil {
		return answerDone
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := sync(ctx, stream); err != nil {
		return err.Error()
	}
	return answerDone
}

// Remote is the barrier that another process serves. Writers of this process
// that wait for the same stream at the same time share one request.
type Remote struct {
	nc     *nats.Conn
	prefix string
	groups Groups // by stream
}

// NewRemote returns the barrier that is served at prefix. It sends nothing.
func NewRemote(nc *nats.Conn, prefix string) *Remote {
	return &Remote{nc: nc, prefix: prefix}
}

// Sync is a Func. It returns the error of the serving side, nats.ErrNoResponders
// if it is not served any more, and ctx's error or nats.ErrTimeout without an
// answer in 1.5 s.
func (r *Remote) Sync(ctx context.Context, stream string) error {
	return r.groups.Of(stream).Do(ctx, func(ctx context.Context) error {
		got, err := r.ask(ctx, stream)
		if err == nil && got != answerDone {
			err = errors.New(got)
		}
		if err != nil {
			return fmt.Errorf("wait for %s to be on the disk: %w", stream, err)
		}
		return nil
	})
}

func (r *Remote) ask(ctx context.Context, stream string) (string, error) {
	within, cancel := context.WithTimeoutCause(ctx, askTimeout, nats.ErrTimeout)
	defer cancel()
	m, err := r.nc.RequestWithContext(within, r.prefix+stream, nil)
	if err == nil {
		return string(m.Data), nil
	}
	if ctx.Err() == nil && within.Err() != nil {
		err = nats.ErrTimeout
	}
	return "", err
}
