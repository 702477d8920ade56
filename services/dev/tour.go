package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/services/cli"
	"flightline/shared/client"
	"flightline/shared/endpoint"
	"flightline/shared/telemetry"
	"flightline/shared/worker"
)

// echo is the endpoint of the demo.
const echo = "echo"

const (
	// firstAnswerTimeout is after how long without an answer of the API a warning
	// is logged.
	firstAnswerTimeout = 30 * time.Second
	// firstJob is how long the demo's job may take.
	firstJob = 30 * time.Second
)

// tour shows a newcomer that it works, over HTTP as anybody would.
type tour struct {
	client    *client.Client
	nc        *nats.Conn
	url, data string
	demo      bool
	version   string
	out       io.Writer
	log       *slog.Logger
	tracer    *telemetry.Tracer
}

// run says when requests are served, runs the demo's worker and its first job,
// says what to try next, and keeps the worker until ctx ends.
func (t *tour) run(ctx context.Context) error {
	if err := t.ready(ctx); err != nil {
		return err
	}
	if !t.demo {
		<-ctx.Done()
		return nil
	}
	if err := t.makeEcho(ctx); err != nil {
		return err
	}
	if err := t.runEcho(ctx); !errors.Is(err, endpoint.ErrNotFound) {
		return err
	}
	<-ctx.Done() // somebody deleted echo, which is no reason to stop the rest
	return nil
}

// runEcho runs the demo's worker until ctx ends, and its first job.
func (t *tour) runEcho(ctx context.Context) error {
	registered := make(chan struct{})
	ended := make(chan error, 1)
	go func() { // ends with ctx; waited for below
		ended <- worker.Run(ctx, worker.Config{
			Endpoint: echo, NC: t.nc, Version: t.version, Log: t.log, Tracer: t.tracer, OnReady: func() { close(registered) },
		}, func(_ context.Context, j *worker.Job) (any, error) { return j.Input, nil })
	}()
	select {
	case err := <-ended:
		return err
	case <-registered:
	}
	if err := t.firstJob(ctx); err != nil && ctx.Err() == nil {
		t.log.WarnContext(ctx, "first job not shown", "err", err)
	}
	return <-ended
}

// ready waits until the API answers, and prints its address.
func (t *tour) ready(ctx context.Context) error {
	err := t.retryCall(ctx, firstAnswerTimeout, func(ctx context.Context) error {
		_, err := t.client.Endpoints().List(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("list endpoints: %w", err)
	}
	_, err = fmt.Fprintf(t.out, "flightline ready: %s\n", t.url)
	return err
}

func (t *tour) makeEcho(ctx context.Context) error {
	return t.retryCall(ctx, firstAnswerTimeout, func(ctx context.Context) error {
		_, err := t.client.Endpoints().Create(ctx, client.EndpointSpec{ID: echo, Name: "returns its input"})
		if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusConflict {
			return nil // there since an earlier start
		}
		return err
	})
}

// retryCall calls the API until it answers. A store that is slow after a kill, under
// load, must not end the process, which serves as soon as the store does. It
// returns the error of an answer below 500, and ctx's error when ctx ends.
func (t *tour) retryCall(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	for {
		within, cancel := context.WithTimeout(ctx, timeout)
		err := call(within)
		cancel()
		refused, answered := errors.AsType[*client.Error](err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case answered && refused.Status < http.StatusInternalServerError:
			return err
		}
		t.log.WarnContext(ctx, "the API does not answer yet, asking again", "err", err)
	}
}

const next = `
Try it from another terminal in this folder:
  go run ./services/flightline run echo '{"input":{"text":"hello"}}' --wait
  eval "$(go run ./services/flightline env)"    # addresses and keys, from %s
  curl %s/v2/echo/runsync -H "Authorization: Bearer $FLIGHTLINE_API_KEY" -d '{"input":{"text":"hello"}}'
`

func (t *tour) firstJob(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstJob)
	defer cancel()
	j, err := t.client.Run(ctx, echo, client.Request{Input: map[string]string{"text": "hello, world"}})
	if err != nil {
		return err
	}
	if j, err = t.client.Wait(ctx, echo, j.ID); err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.out, "first job %s is %s: %s\n"+next, j.ID, j.Status, j.Output, cli.RunningPath(t.data), t.url)
	return err
}
