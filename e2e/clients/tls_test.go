package clients

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/tlsconfig/certstest"
)

// secureSite is a dev whose certificate a private authority has issued.
func secureSite(t *testing.T) (s *env, ca string) {
	t.Helper()
	a := certstest.New(t)
	cert, key := a.Issue("dev", "127.0.0.1", "localhost")
	s, err := startEnv(context.WithoutCancel(t.Context()), t.TempDir(), "--tls-cert", cert, "--tls-key", key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.dev.stop(); err != nil {
			t.Error(err)
		}
	})
	return s, a.CA()
}

// The published worker takes jobs, streams and posts results over https: it
// needs a private authority twice, as it speaks HTTP with two
// libraries.
func TestThePublishedWorkerWorksOverTLS(t *testing.T) {
	t.Parallel()
	needsPython(t, python)
	s, ca := secureSite(t)
	dir := t.TempDir()
	b := &bench{
		T: t, s: s, gateway: s.URL, script: absolute(t, "python/worker.py"), dir: dir,
		endpoint: s.endpoint(t, client.EndpointSpec{Lease: 10 * time.Second}),
		runs:     filepath.Join(dir, "runs"), gofile: filepath.Join(dir, "go"),
	}
	trusts := []string{"SSL_CERT_FILE=" + ca, "REQUESTS_CA_BUNDLE=" + ca}
	w := b.start("plain", trusts...)
	b.completes(b.submit(map[string]any{"n": 1}), `{"n":1}`)
	large := b.until(b.submit(map[string]any{"do": "bytes", "bytes": 3 << 20}), job.Completed)
	if got := len(large.Output); got != 3<<20+2 {
		t.Errorf("got an output of %d bytes, want 3 MB", got)
	}
	// A poll of a worker that was killed is given no job.
	w.kill()
	id := b.submit(map[string]any{"n": 2})
	b.start("plain", trusts...)
	b.completes(id, `{"n":2}`)
	b.ran(id, 1)
}

func TestPublishedClientsWorkOverTLS(t *testing.T) {
	t.Parallel()
	needsPython(t, python)
	s, ca := secureSite(t)
	for name, test := range map[string]struct {
		what, script string
		run          func(t *testing.T, what, script string, env ...string) *exec.Cmd
	}{
		"python":     {python, "python/sync_client.py", pythonScript},
		"asyncio":    {python, "python/asyncio_client.py", pythonScript},
		"javascript": {node, "javascript/client.js", nodeScript},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := test.run(t, test.what, test.script)
			worked := s.endpoint(t, client.EndpointSpec{})
			startGoWorker(t, s, worked)
			cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+ca, "REQUESTS_CA_BUNDLE="+ca, "NODE_EXTRA_CA_CERTS="+ca,
				"BASE_URL="+s.URL+"/v2", "API_KEY="+s.APIKey, "WORKED="+worked, "IDLE="+s.endpoint(t, client.EndpointSpec{}),
				// The Python client waits out no 429 over https, so status has no limit.
				"LIMITED="+s.endpoint(t, client.EndpointSpec{Limits: map[string]client.Limit{"run": {Requests: 1}}}))
			wantGolden(t, name+".golden", transcript(t, cmd))
		})
	}
}
