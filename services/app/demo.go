package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/services/cli"
	"flightline/shared/client"
	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
	"flightline/shared/web"
	"flightline/shared/worker"
)

// echo is the endpoint of the demo.
const echo = "echo"

const (
	// firstAnswerTimeout is after how long without an answer of the API a warning
	// is logged.
	firstAnswerTimeout = 30 * time.Second
	// firstJobTimeout is how long the demo's job may take.
	firstJobTimeout = 30 * time.Second
)

// demo shows a newcomer that it works, over HTTP as anybody would.
type demo struct {
	client    *client.Client
	nc        *nats.Conn
	url, data string
	program   string // as the user started it, for what to try next
	enabled   bool   // else it only says when requests are served
	version   string
	out       io.Writer
	log       *slog.Logger
	tracer    *telemetry.Tracer
}

// run says when requests are served, runs the demo's worker and its first job,
// says what to try next, and keeps the worker until ctx ends.
func (d *demo) run(ctx context.Context) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	if !d.enabled {
		<-ctx.Done()
		return nil
	}
	if err := d.makeEcho(ctx); err != nil {
		return err
	}
	afterStart := d.firstJob
	for {
		if err := d.runEcho(ctx, afterStart); !errors.Is(err, endpoint.ErrNotFound) {
			return err
		}
		if !d.awaitEcho(ctx) {
			return nil
		}
		afterStart = func(context.Context) error { return nil }
	}
}

// echoCheckInterval is the pause between two looks for an endpoint echo that was deleted.
const echoCheckInterval = time.Second

// awaitEcho returns true once somebody has made the endpoint echo again, and nothing
// else starts workers for it; false when ctx ends.
func (d *demo) awaitEcho(ctx context.Context) bool {
	for retry.Sleep(ctx, echoCheckInterval) == nil {
		e, err := d.client.Endpoints().Get(ctx, echo)
		if err == nil && (e.Fleet.Driver == "" || e.Fleet.Driver == string(pod.External)) {
			return true
		}
	}
	return false
}

// runEcho runs the demo's worker until ctx ends, and calls afterStart once it is ready.
func (d *demo) runEcho(ctx context.Context, afterStart func(context.Context) error) error {
	registered := make(chan struct{})
	ended := make(chan error, 1)
	go func() { // ends with ctx; waited for below
		ended <- worker.Run(ctx, worker.Config{
			Endpoint: echo, NC: d.nc, Version: d.version, Log: d.log, Tracer: d.tracer, OnReady: func() { close(registered) },
		}, func(_ context.Context, j *worker.Job) (any, error) { return j.Input, nil })
	}()
	select {
	case err := <-ended:
		return err
	case <-registered:
	}
	if err := afterStart(ctx); err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "first job not shown", "err", err)
	}
	return <-ended
}

// ready waits until the API answers, and prints its address.
func (d *demo) ready(ctx context.Context) error {
	err := d.retryCall(ctx, firstAnswerTimeout, func(ctx context.Context) error {
		_, err := d.client.Endpoints().List(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("list endpoints: %w", err)
	}
	_, err = fmt.Fprintf(d.out, "flightline ready: %s\n", d.url)
	return err
}

func (d *demo) makeEcho(ctx context.Context) error {
	return d.retryCall(ctx, firstAnswerTimeout, func(ctx context.Context) error {
		_, err := d.client.Endpoints().Create(ctx, client.EndpointSpec{ID: echo, Name: new("returns its input")})
		if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusConflict {
			if refused.Code != string(web.EndpointExists) {
				d.log.WarnContext(ctx, "no demo: its endpoint cannot be created", "endpoint", echo, "err", err)
			}
			return nil // there since an earlier start
		}
		return err
	})
}

// retryCall calls the API until it answers. A store that is slow after a kill, under
// load, must not end the process, which serves as soon as the store does. It
// returns the error of an answer below 500, and ctx's error when ctx ends.
func (d *demo) retryCall(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	unanswered := func(err error) bool {
		refused, answered := errors.AsType[*client.Error](err)
		if ctx.Err() != nil || answered && refused.Status < http.StatusInternalServerError {
			return false
		}
		d.log.WarnContext(ctx, "the API does not answer yet, asking again", "err", err)
		return true
	}
	err := retry.Do(ctx, retry.Every(retryDelay), unanswered, func() error {
		within, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return call(within)
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// retryDelay is the pause after a call that the API did not answer.
const retryDelay = 100 * time.Millisecond

const nextText = `
Try it from another terminal in this folder:
  %[4]s run echo '{"input":{"text":"hello"}}' --wait%[1]s
  eval "$(%[4]s env%[1]s)"    # addresses and keys, from %[2]s
  curl %[3]s/v2/echo/runsync -H "Authorization: Bearer $FLIGHTLINE_API_KEY" -d '{"input":{"text":"hello"}}'
`

// next says what to try in another terminal, with the data folder where commands do
// not look by themselves.
func (d *demo) next() string {
	flag := ""
	if filepath.Clean(d.data) != cli.DefaultData {
		flag = " --data '" + strings.ReplaceAll(d.data, "'", `'\''`) + "'"
	}
	return fmt.Sprintf(nextText, flag, cli.RunningPath(d.data), d.url, d.program)
}

func (d *demo) firstJob(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstJobTimeout)
	defer cancel()
	j, err := d.client.Run(ctx, echo, client.Request{Input: map[string]string{"text": "hello, world"}})
	if err != nil {
		return err
	}
	if j, err = d.client.Wait(ctx, echo, j.ID); err != nil {
		return err
	}
	_, err = fmt.Fprintf(d.out, "first job %s is %s: %s\n%s", j.ID, j.Status, j.Output, d.next())
	return err
}
