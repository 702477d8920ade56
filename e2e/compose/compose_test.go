package compose

import (
	"slices"
	"strings"
	"testing"

	"flightline/shared/client"
	"flightline/shared/job"
)

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

// A second `docker compose up` runs worker-setup once more: the worker that runs
// is not shut out by it. The doctor of the profile tools has nothing to complain of.
func TestComposeUpAgainKeepsTheWorker(t *testing.T) {
	services := []string{"setup", "worker-setup", "nats", "control", "api", "gateway", "recorder", "webhook", "worker", "receiver"}
	s := start(t, "flightlineagain", single, []string{"tools"}, services)
	s.answers()
	worker, setup := s.container("worker").GetContainerID(), s.started("worker-setup")
	s.up(append(services, "operate")...)
	if got := s.container("worker").GetContainerID(); got != worker || s.started("worker-setup") == setup {
		t.Errorf("got the worker %s and worker-setup of %s, want %s still, and worker-setup again", got, setup, worker)
	}
	s.answers()
	if said := s.logs("operate"); !strings.Contains(said, "ok    nats version") {
		t.Errorf("the doctor says: %s", said)
	}
	s.noViolation("nats")
}

// started is when the service's container was started last.
func (s *stack) started(service string) string {
	s.t.Helper()
	state, err := s.container(service).State(s.t.Context())
	if err != nil {
		s.t.Fatalf("%s: %v", service, err)
	}
	return state.StartedAt
}

// answers checks that a job goes through and that its webhook arrives.
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

// uploads checks that what s3_upload.py puts out is in the bucket of the profile s3.
func (s *stack) uploads() {
	t := s.t
	t.Helper()
	text := strings.Repeat("a large output ", 1<<16)
	j, err := s.client().RunSync(t.Context(), "python-s3", client.Request{Input: map[string]string{"text": text}}, 0)
	if err != nil || j.Status != job.Completed || !strings.Contains(string(j.Output), s.at("S3_PORT")+"/flightline/") {
		t.Fatalf("got %+v, %v, want the address of an upload", j, err)
	}
	code, _, err := s.container("s3").Exec(t.Context(), []string{"test", "-s", "/data/flightline/" + string(j.ID) + "/result.txt"})
	if err != nil || code != 0 {
		t.Errorf("got %d, %v, want the file of job %s in the bucket", code, err, j.ID)
	}
}

// noViolation checks that nobody tried what the permissions do not allow.
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
	roles := []string{"setup", "worker-setup", "nats", "control", "api", "gateway", "recorder", "webhook", "autoscaler", "console", "worker", "receiver"}
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
		return err == nil && len(up) == 7
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
