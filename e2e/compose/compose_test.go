package compose

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"flightline/e2e/need"
	"flightline/shared/client"
	"flightline/shared/job"
)

// The files are ones that compose takes, whatever version of it is here.
func TestComposeFilesAreValid(t *testing.T) {
	checked := 0
	for _, compose := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if exec.CommandContext(t.Context(), compose[0], append(slices.Clone(compose[1:]), "version")...).Run() != nil {
			continue
		}
		checked++
		for _, files := range [][]string{{"-f", "compose.yaml"}, {"-f", "compose.yaml", "-f", "compose.cluster.yaml"}} {
			must(t, slices.Concat(compose, files, []string{"--profile", "s3", "--profile", "observe", "--profile", "tools", "config", "-q"})...)
		}
	}
	if checked == 0 {
		need.Skip(t, "compose", "docker compose is not there")
	}
}

// The README's job runs, on RunPod's own Python worker, its webhook arrives, and
// while every container is restarted under load no call of a client fails and no
// job is lost. Large outputs go to the bucket.
func TestComposeOutlivesRestartsUnderLoad(t *testing.T) {
	s := start(t, "flightlinetest", single, []string{"s3"}, nil)
	s.answers()
	s.uploads()
	l := newLoad(s)
	for _, service := range []string{"worker", "gateway", "recorder", "webhook", "autoscaler", "control", "nats", "api"} {
		s.restart(service)
		l.alive("the restart of " + service)
	}
	l.end()
	s.python(t)
	s.noViolation("nats")
}

// answers tells that a job goes through and that its webhook arrives.
func (s *stack) answers() {
	s.t.Helper()
	j, err := s.client().RunSync(s.t.Context(), endpointID, client.Request{Input: map[string]string{"text": "hello"}, Webhook: "http://receiver:9000/"}, 0)
	if err == nil {
		err = right(j, "hello")
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the webhook arrives", func() bool { return strings.Contains(s.logs("receiver"), "RECEIVED {") })
}

// uploads tells that what s3_upload.py puts out is in the bucket of the profile s3.
func (s *stack) uploads() {
	t := s.t
	t.Helper()
	text := strings.Repeat("a large output ", 1<<16)
	j, err := s.client().RunSync(t.Context(), "python-s3", client.Request{Input: map[string]string{"text": text}}, 0)
	if err != nil || j.Status != job.Completed || !strings.Contains(string(j.Output), "http://s3:7070/flightline/") {
		t.Fatalf("got %+v, %v, want the address of an upload", j, err)
	}
	code, _, err := s.container("s3").Exec(t.Context(), []string{"test", "-s", "/data/flightline/" + string(j.ID) + "/result.txt"})
	if err != nil || code != 0 {
		t.Errorf("got %d, %v, want the file of job %s in the bucket", code, err, j.ID)
	}
}

// noViolation tells that nobody tried what the permissions do not allow.
func (s *stack) noViolation(nats ...string) {
	s.t.Helper()
	for _, service := range nats {
		for line := range strings.Lines(s.logs(service)) {
			if strings.Contains(line, "Violation") {
				s.t.Errorf("%s: %s", service, line)
			}
		}
	}
}

// Prometheus finds every role and the rules, and answers what the dashboard asks.
// Grafana is left out: there is no stand-in for it.
func TestComposeObserves(t *testing.T) {
	roles := []string{"setup", "worker-setup", "nats", "control", "api", "gateway", "recorder", "webhook", "autoscaler", "worker", "receiver"}
	s := start(t, "flightlineobserve", single, []string{"observe"}, append(roles, "prometheus"))
	s.answers()
	s.eventually("every target is up", func() bool {
		var targets struct {
			Data struct {
				ActiveTargets []struct{ Health string }
			}
		}
		err := s.get(s.at("PROMETHEUS_PORT")+"/api/v1/targets", &targets)
		up := slices.DeleteFunc(targets.Data.ActiveTargets, func(t struct{ Health string }) bool { return t.Health != "up" })
		return err == nil && len(up) == 6
	})
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health string }
			}
		}
	}
	s.eventually("the rules are evaluated", func() bool {
		err := s.get(s.at("PROMETHEUS_PORT")+"/api/v1/rules", &rules)
		return err == nil && len(rules.Data.Groups) > 0 && len(rules.Data.Groups[0].Rules) > 0 &&
			!slices.ContainsFunc(rules.Data.Groups[0].Rules, func(r struct{ Name, Health string }) bool { return r.Health != "ok" })
	})
	t.Logf("%d rules", len(rules.Data.Groups[0].Rules))
	s.queries()
}

// single is one of each role; cluster is three NATS servers, and two of each role.
var (
	single  = []string{"../../compose.yaml", "test.yaml"}
	cluster = []string{"../../compose.yaml", "../../compose.cluster.yaml", "test.yaml"}
)

// Of three NATS servers and two instances of each role any may be killed, under
// load: no call of a client fails, and no job is lost.
func TestComposeClusterOutlivesKills(t *testing.T) {
	s := start(t, "flightlinecluster", cluster, nil, nil)
	s.api += "," + s.at("API_2_PORT")
	s.answers()
	l := newLoad(s)
	for _, service := range []string{"nats-2", "api-2", "gateway", "recorder", "webhook-2", "autoscaler", "control", "nats"} {
		s.kill(service)
		l.alive("kill -9 of " + service)
		s.startAgain(service)
	}
	l.end()
	s.noViolation("nats", "nats-2", "nats-3")
}

// kill is kill -9.
func (s *stack) kill(service string) {
	s.t.Helper()
	must(s.t, "docker", "kill", "-s", "KILL", s.container(service).GetContainerID())
}
