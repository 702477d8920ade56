// Package worker is `flightline worker`: it runs the jobs of an endpoint by a
// command, or by an HTTP server on this machine, so that a worker can be
// written in any language without a library.
//
// A command is started for each job and gets the job as one JSON document on
// stdin:
//
//	{"id":"…","input":{…},"webhook":"…","s3Config":{…},"policy":{"executionTimeout":600000,"ttl":86400000,"lowPriority":false}}
//
// webhook and s3Config are there if the caller gave them, the policy is the
// one in force. Each line of JSON on stdout is a result: the last one is the
// job's output, those before it are chunks of its stream, sent as soon as a
// later one shows that they are not the last. If no line is JSON, the text is the
// output, as a string. Lines that are no JSON are logged, as is stderr, at level
// info. Exit code 0 completes the job; any other fails it with the end of stderr
// as its error.
//
// When the job is cancelled, runs out of time, or the worker stops, the
// command and all processes of its group get SIGTERM, and a second later
// SIGKILL.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os/exec"

	"github.com/google/uuid"

	"flightline/shared/endpoint"
	sdk "flightline/shared/worker"
)

// ErrConfig is what New returns if the Config cannot be used.
var ErrConfig = errors.New("worker: configuration")

// Config says whose jobs are run, and by what: exactly one of Command and URL
// is set.
type Config struct {
	// Worker is the endpoint, the bus and the bounds. Its Concurrency, 0
	// meaning 1, is also how many commands run at once. Its Log is not used.
	Worker sdk.Config
	// Command is the program, looked up in PATH, and its arguments.
	Command []string
	// Dir is the command's working directory. "" means ours.
	Dir string
	// Env is the command's environment, as "NAME=value". nil means ours, with
	// all that is secret in it.
	Env []string
	// URL is the http or https address to which each job is POSTed.
	URL string
}

// Service is a worker that is about to run.
type Service struct {
	cfg     sdk.Config
	handler sdk.Handler
	running running
	close   func()
}

// New makes a worker of cfg. It starts nothing. It returns ErrConfig, also if
// the command does not exist. A nil log means silence.
func New(cfg Config, log *slog.Logger) (*Service, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	cfg.Worker.Log, cfg.Worker.ID = log, cmp.Or(cfg.Worker.ID, uuid.NewString())
	log = log.With("endpoint", cfg.Worker.Endpoint, "worker", cfg.Worker.ID)
	s := &Service{cfg: cfg.Worker, close: func() {}}
	switch {
	case (len(cfg.Command) == 0) == (cfg.URL == ""):
		return nil, fmt.Errorf("%w: either a command or a URL is needed", ErrConfig)
	case cfg.URL != "":
		u, err := url.Parse(cfg.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return nil, fmt.Errorf("%w: the URL must be an http or https one", ErrConfig)
		}
		server := newServer(cfg.URL, cmp.Or(cfg.Worker.Concurrency, 1), log)
		s.handler, s.close = server.run, server.close
	default:
		path, err := exec.LookPath(cfg.Command[0])
		if err != nil {
			return nil, fmt.Errorf("%w: command: %w", ErrConfig, err)
		}
		if s.cfg.Command == nil {
			s.cfg.Command = cfg.Command
		}
		c := &command{path: path, args: cfg.Command, dir: cfg.Dir, env: cfg.Env, log: log}
		s.handler = c.run
	}
	return s, nil
}

// Run runs jobs until ctx is done, and then stops as the SDK's Run does, whose
// errors it returns.
func (s *Service) Run(ctx context.Context) error {
	defer s.close()
	err := sdk.Run(ctx, s.cfg, s.running.track(s.handler))
	if errors.Is(err, endpoint.ErrNotFound) {
		err = fmt.Errorf("%w: 'flightline endpoint list' shows those there are, 'flightline endpoint create %s' makes it", err, s.cfg.Endpoint)
	}
	return err
}

// Waiting says which jobs run, "" if none does.
func (s *Service) Waiting() string { return s.running.String() }
