package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/retry"
	sdk "flightline/shared/worker"
)

const (
	// stopTimeout is how long a model server may take to end after SIGTERM.
	stopTimeout = 5 * time.Second
	// outageRetryDelay is the pause between two tries of a worker to begin again.
	outageRetryDelay = time.Second
)

// errServerEnded ends a worker whose model server ended.
var errServerEnded = errors.New("worker: the model server ended")

// serve runs the server to its end, or until ctx ends: then it, and what it
// started, gets SIGTERM, and SIGKILL after stopTimeout. What it prints is logged.
func (c *command) serve(ctx context.Context) error {
	cmd, stderr, err := c.runLogged(ctx, stopTimeout, func(stream, line string) {
		c.log.InfoContext(ctx, "model server says", stream, line)
	})
	if cmd.Process != nil {
		killGroup(cmd)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was stopped
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("%w: %w", errServerEnded, failure(err, stderr))
}

// runUpstream works while the model server is ready. It starts the server before, and
// stops it when the last job has ended, if there is a command for it. The end of the
// server is an error.
func (s *Service) runUpstream(ctx context.Context) error {
	if s.server == nil {
		return s.upstream.whileReady(ctx, s.workAwake, s.drained.Load)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	ended := make(chan error, 1)
	go func() { // waited for below
		err := s.server.serve(serving)
		stop()
		ended <- err
	}()
	err := s.upstream.whileReady(ctx, s.work, s.drained.Load)
	stopServing()
	return errors.Join(<-ended, err)
}

// work runs jobs until ctx is done. Once it has begun, it sits out outages of NATS.
func (s *Service) work(ctx context.Context) error {
	for {
		err := s.workOnce(ctx)
		if !s.began.Load() || !mayHeal(err) {
			return err
		}
		s.cfg.Log.WarnContext(ctx, "NATS cannot be reached, trying again", "err", err)
		if retry.Sleep(ctx, outageRetryDelay) != nil {
			return nil //nolint:nilerr // it was stopped
		}
	}
}

// mayHeal reports whether time may heal the error that a worker ended with: NATS is away, or
// refuses it, which a worker that is connected sits out.
func mayHeal(err error) bool {
	ends := func(of error) bool { return errors.Is(err, of) }
	return err != nil && !slices.ContainsFunc([]error{sdk.ErrConfig, sdk.ErrStuck, sdk.ErrWake, endpoint.ErrNotFound, errUnstarted}, ends)
}

func (s *Service) workOnce(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	err := sdk.Run(ctx, s.cfg, s.running.track(s.givesBack(ctx, end)))
	if cause := context.Cause(ctx); errors.Is(cause, errUnstarted) {
		return errors.Join(cause, err)
	}
	return err
}
