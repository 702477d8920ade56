package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"flightline/shared/pod"
)

// Sleep says how a worker gives its GPU's memory back while no job needs it, and how it
// wakes: by paths of the model server, or by commands. The zero value means that it
// cannot. When it sleeps, the autoscaler says (docs/adr/0069).
type Sleep struct {
	// Path and WakePath are paths of the upstream, with a slash first and a query if
	// need be. A POST without a body is answered with 2xx once the server sleeps, or is awake.
	Path, WakePath string
	// Command and WakeCommand are run by /bin/sh in Config.Dir with Config.Env. They end
	// with code 0 once the worker sleeps, or is awake.
	Command, WakeCommand string
}

// check returns an ErrConfig for a Sleep that cannot be.
func (s Sleep) check(upstream bool) error {
	for _, pair := range []struct{ flag, have, other, lacks string }{
		{"sleep-path", s.Path, "wake-path", s.WakePath},
		{"wake-path", s.WakePath, "sleep-path", s.Path},
		{"sleep-command", s.Command, "wake-command", s.WakeCommand},
		{"wake-command", s.WakeCommand, "sleep-command", s.Command},
	} {
		switch {
		case pair.have == "":
		case pair.lacks == "":
			return fmt.Errorf("%w: --%s %q needs --%s", ErrConfig, pair.flag, pair.have, pair.other)
		case !strings.HasSuffix(pair.flag, "path"):
		case !strings.HasPrefix(pair.have, "/"):
			return fmt.Errorf("%w: --%s must begin with /, got %q", ErrConfig, pair.flag, pair.have)
		case !upstream:
			return fmt.Errorf("%w: --%s %q needs --openai-upstream, whose path it is", ErrConfig, pair.flag, pair.have)
		}
	}
	if s.Path != "" && s.Command != "" {
		return fmt.Errorf("%w: --sleep-path %q and --sleep-command %q exclude each other", ErrConfig, s.Path, s.Command)
	}
	return nil
}

// sleeper puts the worker to sleep and wakes it.
type sleeper struct {
	Sleep
	upstream *upstream // nil without a model server
	dir      string
	env      []string
	log      *slog.Logger
}

// buildSleep lets the SDK put the worker to sleep, if the configuration says how.
func (s *Service) buildSleep(cfg Config, log *slog.Logger) error {
	if err := cfg.Sleep.check(s.upstream != nil); err != nil || cfg.Sleep == (Sleep{}) {
		return err
	}
	s.sleeper = &sleeper{Sleep: cfg.Sleep, upstream: s.upstream, dir: cfg.Dir, env: cfg.Env, log: log}
	s.cfg.Sleep, s.cfg.Wake = s.sleeper.sleep, s.sleeper.wake
	if s.upstream != nil && len(cfg.Command) == 0 {
		s.upstream.wake = s.sleeper.wake
	}
	return nil
}

// workAwake is work on a model server that an earlier worker may have left asleep.
func (s *Service) workAwake(ctx context.Context) error {
	if s.sleeper == nil {
		return s.work(ctx)
	}
	within, cancel := context.WithTimeout(ctx, pod.WakeTimeout)
	err := s.sleeper.wake(within)
	cancel()
	if err != nil {
		return err
	}
	return s.work(ctx)
}

// tryWake wakes a server that is not ready, which may be because it sleeps.
func (u *upstream) tryWake(ctx context.Context) {
	if u.wake == nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := u.wake(within); err != nil {
		u.log.DebugContext(ctx, "the model server was not woken", "err", err)
	}
}

// sleep returns once the worker sleeps. What the server answers to probes says nothing
// until it is awake.
func (s *sleeper) sleep(ctx context.Context) error {
	if s.upstream != nil {
		s.upstream.asleep.Store(true)
	}
	return s.do(ctx, s.Path, s.Command)
}

// wake returns once the worker can run jobs.
func (s *sleeper) wake(ctx context.Context) error {
	if err := s.do(ctx, s.WakePath, s.WakeCommand); err != nil {
		return err
	}
	if s.upstream != nil {
		s.upstream.asleep.Store(false)
	}
	return nil
}

func (s *sleeper) do(ctx context.Context, path, script string) error {
	if path != "" {
		return s.upstream.post(ctx, path)
	}
	c := &command{path: "/bin/sh", args: []string{"sh", "-c", script}, dir: s.dir, env: s.env, log: s.log}
	return c.runOnce(ctx)
}

// runOnce runs the command to its end, without input; what it prints is logged.
func (c *command) runOnce(ctx context.Context) error {
	_, stderr, err := c.runLogged(ctx, killAfter, func(stream, line string) {
		c.log.InfoContext(ctx, "command says", stream, line)
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.args[len(c.args)-1], failure(err, stderr))
	}
	return nil
}

// post sends a POST without a body and waits for an answer with 2xx.
func (u *upstream) post(ctx context.Context, target string) error {
	path, query, _ := strings.Cut(target, "?")
	request, err := u.request(ctx, http.MethodPost, path, nil)
	if err != nil {
		return fmt.Errorf("POST %s: %w", target, err)
	}
	request.URL.RawQuery = query
	answer, err := u.client.Do(request)
	if wrapped, ok := errors.AsType[*url.Error](err); ok { // its text has the address in it
		err = cmp.Or(context.Cause(ctx), wrapped.Err)
	}
	if err != nil {
		return fmt.Errorf("POST %s: the model server did not answer: %w", target, err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, errorBody)) // as much as came
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("POST %s: the model server answered %s: %s", target, answer.Status, bytes.TrimSpace(text))
	}
	return nil
}
