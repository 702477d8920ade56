package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus/barrier"
	"flightline/shared/job"
	"flightline/streams"
)

// In a cluster a leader that was cut off goes on to answer reads for 10 to 20 s.
// It lacks what was stored on the other side of the cut since. So the absence of
// a job is confirmed: both leaders commit an entry that changes nothing, which
// takes a majority, and the job is looked for again. An entry that arrives at an
// old leader too ends its leadership, if it still reaches anybody.

// errMoved means that the connection went to another server between two requests
// that belong together.
var errMoved = fmt.Errorf("%w: the connection went to another server", ErrUnavailable)

// absent is lookUp's job.ErrNotFound, once it is confirmed; else what lookUp
// finds then, or ErrUnavailable. A server that is alone needs no confirmation.
func (q *Queue) absent(ctx context.Context, at place, lookUp func() (*record, error)) (*record, error) {
	if q.cfg.TrustAbsence || !q.clustered.Load() {
		return nil, job.ErrNotFound
	}
	return untilAnswered(ctx, func() (*record, error) {
		server := q.nc.ConnectedServerId()
		var both errgroup.Group
		both.Go(func() error {
			stream := streams.Jobs(at.endpoint)
			return q.commit(ctx, stream, streams.MsgDelete(stream), `{"seq":0}`)
		})
		both.Go(func() error {
			stream := streams.Records(at.partition)
			return q.commit(ctx, stream, streams.StreamPurge(stream), `{"filter":"`+streams.CheckFilter+`"}`)
		})
		if err := both.Wait(); err != nil {
			return nil, err
		}
		r, err := lookUp()
		if errors.Is(err, job.ErrNotFound) && q.nc.ConnectedServerId() != server {
			return nil, errMoved
		}
		return r, err
	})
}

// commit sends a request that changes nothing, and that the stream's leader
// answers once a majority has stored it, whether it succeeds or fails. Callers
// that come at the same time share one. The queue of an endpoint that was deleted
// needs none.
func (q *Queue) commit(ctx context.Context, stream, subject, body string) error {
	return q.commits.of(stream).Do(ctx, func(ctx context.Context) error {
		err := q.command(ctx, subject, []byte(body), "confirm the leader of "+stream)
		refused, _ := errors.AsType[*apiError](err)
		switch {
		case errors.Is(err, errDeleted), refused != nil && (refused.ErrorCode == codeDeleteFailed || refused.ErrorCode == codeStreamFailed):
			return nil
		}
		return err
	})
}

// commits are the groups that share a commit, by stream.
type commits struct {
	mu     sync.Mutex
	groups map[string]*barrier.Group
}

func (c *commits) of(stream string) *barrier.Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[stream]
	if g == nil {
		if c.groups == nil {
			c.groups = map[string]*barrier.Group{}
		}
		g = barrier.NewGroup()
		c.groups[stream] = g
	}
	return g
}
