// Package compose tries compose.yaml and compose.cluster.yaml for real: the
// images are built, all of it is started, and containers are restarted or killed
// under load. It is a module of its own: compose has many dependencies. It takes
// minutes, so what needs an engine runs only where FLIGHTLINE_REQUIRE lists
// "compose".
package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	tc "github.com/testcontainers/testcontainers-go/modules/compose"

	"flightline/shared/client"
)

const (
	// upWithin bounds a start, and all that is waited for; soon a single call.
	upWithin = 3 * time.Minute
	soon     = time.Minute
	// grace is the longest stop_grace_period of the services.
	grace = 95 * time.Second
)

// stack is all that compose files say, up.
type stack struct {
	t            *testing.T
	compose      *tc.DockerCompose
	services     []string
	env          map[string]string
	key          string
	api, control string          // the addresses of the instances, with commas between them
	away         map[string]span // of those that were restarted
}

// span is from when to when.
type span struct{ from, to time.Time }

// start starts the services, all if none are named, under a project of its own, on
// ports that are free.
func start(t *testing.T, project string, files, profiles, services []string) *stack {
	t.Helper()
	build(t)
	s := &stack{t: t, away: map[string]span{}, key: "fl_key_of_the_compose_tests", env: map[string]string{
		"FLIGHTLINE_IMAGE": image, "WORKER_IMAGE": workerImage, "FLIGHTLINE_LIMITS": "off", "COMPOSE_PROJECT_NAME": project,
		"FLIGHTLINE_WEBHOOK_ALLOW_HTTP": "true", "FLIGHTLINE_WEBHOOK_ALLOW_NETWORKS": "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16",
	}}
	s.env["FLIGHTLINE_API_KEY"] = s.key
	for _, name := range []string{
		"API_PORT", "CONTROL_PORT", "GATEWAY_PORT", "NATS_PORT", "API_2_PORT", "CONTROL_2_PORT", "GATEWAY_2_PORT", "S3_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT",
	} {
		s.env[name] = freePort(t)
	}
	s.api, s.control = s.at("API_PORT"), s.at("CONTROL_PORT")
	var err error
	s.compose, err = tc.NewDockerComposeWith(tc.StackIdentifier(project), tc.WithStackFiles(files...), tc.WithProfiles(profiles...))
	if err != nil {
		t.Fatal(err)
	}
	s.compose.WithEnv(s.env)
	t.Cleanup(s.down)
	s.up(services...)
	return s
}

// up is `docker compose up SERVICE...`, of all services if none are named.
func (s *stack) up(services ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), upWithin)
	defer cancel()
	began := time.Now()
	var some []tc.StackUpOption
	if len(services) > 0 {
		some = append(some, tc.RunServices(services...))
	}
	err := s.compose.Up(ctx, some...)
	if s.services = services; len(services) == 0 {
		s.services = s.compose.Services()
	}
	if err != nil {
		s.t.Fatalf("up: %v", err)
	}
	s.healthy()
	s.t.Logf("all healthy in %v", time.Since(began).Round(time.Second))
}

// down takes everything away, and shows the logs of a test that failed.
func (s *stack) down() {
	ctx, cancel := context.WithTimeout(context.Background(), upWithin)
	defer cancel()
	if s.t.Failed() {
		for _, service := range s.services {
			if c, err := s.compose.ServiceContainer(ctx, service); err == nil {
				s.t.Logf("---- %s\n%s", service, tail(logsOf(ctx, c), 4000))
			}
		}
	}
	if err := s.compose.Down(ctx, tc.RemoveVolumes(true), tc.RemoveOrphans(true)); err != nil {
		s.t.Errorf("down: %v", err)
	}
}

func tail(text string, most int) string { return text[max(0, len(text)-most):] }

// at is the address of a published port.
func (s *stack) at(port string) string { return "http://127.0.0.1:" + s.env[port] }

func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // only its port was wanted
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

func (s *stack) container(service string) *testcontainers.DockerContainer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	c, err := s.compose.ServiceContainer(ctx, service)
	if err != nil {
		s.t.Fatalf("%s: %v", service, err)
	}
	return c
}

func (s *stack) logs(service string) string { return logsOf(s.t.Context(), s.container(service)) }

func logsOf(ctx context.Context, c *testcontainers.DockerContainer) string {
	r, err := c.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	all, _ := io.ReadAll(r)
	return string(all)
}

// restart is `docker compose restart`, until the service is healthy again.
func (s *stack) restart(service string) {
	s.t.Helper()
	c, began, within := s.container(service), time.Now(), grace
	if err := c.Stop(s.t.Context(), &within); err != nil {
		s.t.Fatalf("stop %s: %v", service, err)
	}
	stopped := time.Since(began)
	s.startAgain(service)
	s.away[service] = span{began, time.Now()}
	s.t.Logf("%s restarted: stopped after %v, healthy after %v", service, stopped.Round(100*time.Millisecond), time.Since(began).Round(100*time.Millisecond))
}

func (s *stack) startAgain(service string) {
	s.t.Helper()
	if err := s.container(service).Start(s.t.Context()); err != nil {
		s.t.Fatalf("start %s: %v", service, err)
	}
	s.eventually(service+" is healthy", func() bool { return s.isHealthy(service) })
}

// isHealthy is the engine's word; that a service runs if it has no health check,
// that it ended well if it is one of those that end.
func (s *stack) isHealthy(service string) bool {
	state, err := s.container(service).State(s.t.Context())
	switch {
	case err != nil:
		return false
	case state.Health != nil:
		return state.Health.Status == "healthy"
	case strings.HasSuffix(service, "setup") || service == "operate":
		return state.Status == "exited" && state.ExitCode == 0
	}
	return state.Running
}

// healthy waits for all services.
func (s *stack) healthy() {
	s.t.Helper()
	for _, service := range s.services {
		s.eventually(service+" is healthy", func() bool { return s.isHealthy(service) })
	}
}

// client is a client of all instances of the API, that repeats what failed.
func (s *stack) client() *client.Client {
	s.t.Helper()
	c, err := client.New(s.api, s.key, client.WithRepeatableRuns())
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// get reads JSON over HTTP, without a key.
func (s *stack) get(address string, into any) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), soon)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("got %s", answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
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

// TestMain gives testcontainers what holds where it starts no container of its own.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	m.Run()
}
