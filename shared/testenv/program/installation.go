package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// AdminKey is the administrator's key of an Installation.
const AdminKey = "recovery-admin-key"

// Installation is a NATS server that a test can stop, an API process and a client.
type Installation struct {
	*Env
	NATS   *testenv.Server
	Client *client.Client
	log    string // each run of the handler appends "<worker> <what>" to this file
}

// LeaseMs is the shortest lease that the API allows.
const LeaseMs = 10_000

// NewInstallation starts them, and makes the endpoint work.
func NewInstallation(t *testing.T) *Installation {
	t.Helper()
	s := New(t)
	p := &Installation{Env: s, NATS: testenv.NewServer(t), log: filepath.Join(s.Dir, "handler.log")}
	cfg := p.NATS.Config()
	s.Environ = append(s.Environ, "NATS_URL="+cfg.URL, "FLIGHTLINE_NATS_USER="+cfg.User, "FLIGHTLINE_NATS_PASSWORD="+cfg.Password,
		"FLIGHTLINE_BOOTSTRAP_KEY="+AdminKey, "FLIGHTLINE_API_KEY="+AdminKey)
	url := s.Start("serve", "all").Line(Ready)
	s.Environ = append(s.Environ, "FLIGHTLINE_URL="+url)
	var err error
	if p.Client, err = client.New(url, AdminKey); err != nil {
		t.Fatal(err)
	}
	s.OK("endpoint", "create", "work", "--lease", fmt.Sprintf("%dms", LeaseMs))
	return p
}

// Worker starts a worker whose handler says in the log that it runs, waits
// until the file release exists, and answers with the worker's name.
func (p *Installation) Worker(name, release string) *Process {
	p.T.Helper()
	script := fmt.Sprintf(`echo "%s starts" >>%s; trap 'echo "%s is asked to stop" >>%s; exit 1' TERM; while [ ! -e %s ]; do sleep 0.05; done; echo '"%s"'`,
		name, p.log, name, p.log, release, name)
	d := p.Start("worker", "work", "--id", name, "--grace", "100ms", "--", "sh", "-c", script)
	d.Line(WorkerReady)
	return d
}

// Release is the path of a file that a handler may wait for.
func (p *Installation) Release(name string) string { return filepath.Join(p.Dir, name) }

// Open makes such a file.
func (p *Installation) Open(path string) {
	p.T.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		p.T.Fatal(err)
	}
}

// Logged is what the handlers have said.
func (p *Installation) Logged() string {
	text, err := os.ReadFile(p.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.T.Fatal(err)
	}
	return string(text)
}

// Until waits for a line of the handlers' log and returns how long it took.
func (p *Installation) Until(line string) time.Duration {
	p.T.Helper()
	began := time.Now()
	p.Eventually("the log says "+line, func() bool { return strings.Contains(p.Logged(), line+"\n") })
	return time.Since(began)
}

// Ended waits for the end of a job.
func (p *Installation) Ended(id string) client.Job {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.T.Context(), Soon)
	defer cancel()
	j, err := p.Client.Wait(ctx, "work", job.ID(id))
	if err != nil {
		p.T.Fatal(err)
	}
	return *j
}
