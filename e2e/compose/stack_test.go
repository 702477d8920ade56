// Package compose tries compose.yaml for real: the images are built, all of it
// is started, and containers are restarted under load. That takes minutes, so
// the tests that need an engine run only where FLIGHTLINE_REQUIRE lists
// "compose".
package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/e2e/need"
)

const (
	// buildWithin bounds building an image, upWithin a start, soon all else.
	buildWithin = 8 * time.Minute
	upWithin    = 3 * time.Minute
	soon        = time.Minute
)

// bases are the images that ours are built on and that the stack runs.
var bases = []string{"golang:1.26-bookworm", "gcr.io/distroless/static-debian12:nonroot", "nats:2.15.2-alpine", "python:3.12-slim"}

// stack is the whole of compose.yaml, up.
type stack struct {
	t                 *testing.T
	command           []string // docker compose, as it is called here
	env               []string
	api, control, key string
}

// composeCommand is how compose is called on this machine, nil if it is not
// there.
func composeCommand(ctx context.Context) []string {
	for _, command := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if exec.CommandContext(ctx, command[0], append(command[1:], "version")...).Run() == nil {
			return command
		}
	}
	return nil
}

func newStack(t *testing.T) *stack {
	t.Helper()
	command := composeCommand(t.Context())
	if command == nil {
		need.Skip(t, "compose", "docker compose is not there")
	}
	s := &stack{t: t, command: append(command, "-f", "compose.yaml", "-f", "e2e/compose/test.yaml")}
	ports := make([]any, 0, 4)
	for range 4 {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // only its port was wanted
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	s.env = strings.Fields(fmt.Sprintf("API_PORT=%d CONTROL_PORT=%d GATEWAY_PORT=%d NATS_PORT=%d COMPOSE_PROJECT_NAME=flightlinetest FLIGHTLINE_LIMITS=off", ports...))
	s.api, s.control = fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	return s
}

// run runs a program at the top of the repository.
func (s *stack) run(ctx context.Context, command ...string) (string, error) {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Dir, c.Env = "../..", append(os.Environ(), s.env...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%v: %w\n%s%s", command, err, out, errs.String())
	}
	return string(out), err
}

// must is run of what has to succeed in time.
func (s *stack) must(within time.Duration, command ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), within)
	defer cancel()
	out, err := s.run(ctx, command...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *stack) compose(within time.Duration, args ...string) string {
	s.t.Helper()
	return s.must(within, append(slices.Clip(s.command), args...)...)
}

// up builds the images, on stand-ins where no registry can be reached, and
// starts all.
func (s *stack) up() {
	s.t.Helper()
	for _, image := range bases {
		if _, err := s.run(s.t.Context(), "docker", "image", "inspect", image); err == nil {
			continue
		}
		if _, err := s.run(s.t.Context(), "docker", "pull", "-q", image); err != nil {
			s.must(buildWithin, "e2e/compose/standins")
			break
		}
	}
	s.must(buildWithin, "docker", "build", "-q", "--network", "host", "-f", "services/Dockerfile", "-t", "flightline:dev", ".")
	s.must(buildWithin, "docker", "build", "-q", "--network", "host", "-f", "e2e/workers/Dockerfile", "-t", "flightline-worker:dev", ".")
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Log(s.compose(soon, "logs", "--tail", "40"))
		}
		s.compose(upWithin, "down", "-v", "-t", "5")
	})
	s.compose(upWithin, "up", "-d", "--no-build")
	s.key = strings.TrimSpace(s.compose(soon, "run", "--rm", "key"))
	for _, address := range []string{s.api, s.control} {
		s.eventually(address+" is ready", func() bool {
			code, _, _ := s.call(http.MethodGet, address+"/readyz", "")
			return code == http.StatusOK
		})
	}
}

// call is one request; code 0 stands for no answer.
func (s *stack) call(method, address, body string) (code int, text string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), soon)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(data), err
}

// jobAnswer is what the tests read of a job.
type jobAnswer struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

func (s *stack) job(method, path, body string) (jobAnswer, int, error) {
	code, text, err := s.call(method, s.api+"/v2/python/"+path, body)
	var j jobAnswer
	if err == nil && code == http.StatusOK {
		err = json.Unmarshal([]byte(text), &j)
	}
	return j, code, err
}

func (s *stack) eventually(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(upWithin); !ok(); {
		if time.Now().After(end) {
			s.t.Fatalf("not in %v: %s", upWithin, what)
		}
		pause(200 * time.Millisecond)
	}
}

func pause(d time.Duration) { <-time.After(d) }
