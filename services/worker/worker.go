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
//
// The third way is a server that speaks OpenAI's API, to which the jobs of the
// OpenAI route are passed on while it is ready. A command is then that of the
// server, which runs as long as the worker.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"flightline/shared/endpoint"
	sdk "flightline/shared/worker"
)

// ErrConfig is what New returns if the Config cannot be used.
var ErrConfig = errors.New("worker: configuration")

// Config says whose jobs are run, and by what: exactly one of Command, URL and
// Upstream is set, or Command with Upstream.
type Config struct {
	// Worker is the endpoint, the bus and the bounds. Its Concurrency, 0
	// meaning 1, is also how many commands run at once. Its Log is not used.
	Worker sdk.Config
	// Command is the program, looked up in PATH, and its arguments. With Upstream it
	// is started once, and is the server.
	Command []string
	// Dir is the command's working directory. "" means ours.
	Dir string
	// Env is the command's environment, as "NAME=value". nil means ours, with
	// all that is secret in it.
	Env []string
	// URL is the http or https address to which each job is POSTed.
	URL string
	// Upstream is the OpenAI server to which jobs are passed on. An empty URL means none.
	Upstream Upstream
	// Sleep is how the worker sleeps while no job needs it. The zero value means that it
	// cannot.
	Sleep Sleep
}

// Service is a worker that is about to run.
type Service struct {
	cfg     sdk.Config
	handler sdk.Handler
	running running
	close   func()

	began    atomic.Bool     // it was ready for jobs
	drained  atomic.Bool     // by request
	stopping <-chan struct{} // closed once the worker is asked to stop
	upstream *upstream       // nil: jobs are not passed on to one
	server   *command        // nil: somebody else runs it
	sleeper  *sleeper        // nil: it cannot sleep

	unstartedTimeout time.Duration
}

// New makes a worker of cfg. It starts nothing. It returns ErrConfig, also if
// the command does not exist. A nil log means silence.
func New(cfg Config, log *slog.Logger) (*Service, error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	cfg.Worker.Log, cfg.Worker.ID = log, cmp.Or(cfg.Worker.ID, uuid.NewString())
	log = log.With("endpoint", cfg.Worker.Endpoint, "worker", cfg.Worker.ID)
	s := &Service{cfg: cfg.Worker, unstartedTimeout: unstartedTimeout, close: func() {}}
	s.cfg.OnReady, s.cfg.OnDrain = noting(&s.began, cfg.Worker.OnReady), noting(&s.drained, cfg.Worker.OnDrain)
	if s.cfg.Environment == nil {
		s.cfg.Environment = byName(cfg.Env)
	}
	if s.cfg.Command == nil {
		s.cfg.Command = cfg.Command
	}
	if err := s.build(cfg, log); err != nil {
		return nil, err
	}
	return s, nil
}

// noting sets a fact, and then calls a function unless it is nil.
func noting(fact *atomic.Bool, then func()) func() {
	return func() {
		fact.Store(true)
		if then != nil {
			then()
		}
	}
}

// byName are the variables of an environment.
func byName(env []string) map[string]string {
	all := make(map[string]string, len(env))
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		all[name] = value
	}
	return all
}

// build makes the handler, and what it needs.
func (s *Service) build(cfg Config, log *slog.Logger) (err error) {
	concurrency := cmp.Or(cfg.Worker.Concurrency, 1)
	commands, urls, upstreams := len(cfg.Command) > 0, cfg.URL != "", cfg.Upstream.URL != ""
	switch {
	case upstreams && urls, !upstreams && commands == urls:
		return fmt.Errorf("%w: either a command, a URL or an upstream is needed", ErrConfig)
	case upstreams:
		if s.upstream, err = newUpstream(cfg.Upstream, concurrency, log); err != nil {
			return err
		}
		s.handler, s.close = s.upstream.run, s.upstream.close
	case urls:
		u, err := url.Parse(cfg.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return fmt.Errorf("%w: the URL must be an http or https one", ErrConfig)
		}
		server := newServer(cfg.URL, concurrency, log)
		s.handler, s.close = server.run, server.close
	}
	if err := s.buildSleep(cfg, log); err != nil || !commands {
		return err
	}
	path, err := exec.LookPath(cfg.Command[0])
	if err != nil {
		return fmt.Errorf("%w: command: %w", ErrConfig, err)
	}
	c := &command{path: path, args: cfg.Command, dir: cfg.Dir, env: cfg.Env, log: log}
	if upstreams {
		s.server = c
	} else {
		s.handler = c.run
	}
	return nil
}

// Run runs jobs until ctx is done, and then stops as the SDK's Run does, whose
// errors it returns.
func (s *Service) Run(ctx context.Context) error {
	defer s.close()
	s.stopping = ctx.Done()
	work := s.work
	if s.upstream != nil {
		work = s.runUpstream
	}
	err := work(ctx)
	if errors.Is(err, endpoint.ErrNotFound) {
		err = fmt.Errorf("%w: 'flightline endpoint list' shows those there are, 'flightline endpoint create %s' makes it", err, s.cfg.Endpoint)
	}
	return err
}

// Waiting says which jobs run, "" if none does.
func (s *Service) Waiting() string { return s.running.String() }
