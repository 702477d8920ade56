package s3

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"flightline/e2e/require"
	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

const (
	adminKey = "s3-admin-key"
	patience = 2 * time.Minute
)

// The example e2e/workers/s3_upload.py, on the published runpod package, puts a
// file into the bucket that the job brings, or into that of its endpoint; and
// the bucket's secret is in nothing that anybody can read.
func TestAWorkerUploadsToTheJobsBucketOrTheEndpoints(t *testing.T) {
	python, example := pythonOf(t), absolute(t, "../workers/s3_upload.py")
	d := startDev(t)
	address := startServer(t) // from here on the working directory is another
	hooks := startHooks(t)
	bucketEnv := fmt.Sprintf(`{"BUCKET_ENDPOINT_URL":%q,"BUCKET_ACCESS_KEY_ID":%q,"BUCKET_SECRET_ACCESS_KEY":%q,"BUCKET_NAME":%q}`,
		address, accessID, accessSecret, bucket)
	outside := strings.Replace(address, "127.0.0.1", "localhost", 1)
	for name, way := range map[string]struct{ env, s3, at string }{
		"jobs":      {"{}", config(address, accessSecret, bucket), address},
		"endpoints": {bucketEnv, "null", address},
		"outside":   {strings.Replace(bucketEnv, "{", fmt.Sprintf(`{"BUCKET_PUBLIC_URL":%q,`, outside), 1), "null", outside},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Eventually(t, "the endpoint is made, on a disk that may be busy", func() bool {
				status, _ := d.try(t, "POST", "/v1/endpoints", fmt.Sprintf(`{"id":%q,"env":%s}`, name, way.env))
				return status == http.StatusOK
			})
			d.startWorker(t, name, python, example)
			text := name + " ✓ " + content(1<<20)
			body, err := json.Marshal(map[string]any{"input": map[string]string{"text": text}, "webhook": hooks.url + "/" + name, "s3Config": json.RawMessage(way.s3)})
			if err != nil {
				t.Fatal(err)
			}
			var made, ended client.Job
			parse(t, d.ask(t, "POST", "/v2/"+name+"/run", string(body)), &made)
			testenv.Eventually(t, "the job has ended", func() bool {
				parse(t, d.ask(t, "GET", "/v2/"+name+"/status/"+string(made.ID), ""), &ended)
				return ended.Status.Terminal()
			})
			var output struct {
				URL string `json:"url"`
			}
			if err := json.Unmarshal(ended.Output, &output); err != nil || ended.Status != job.Completed {
				t.Fatalf("got %s %s %q, %v, want an address", ended.Status, ended.Output, ended.Error, err)
			}
			if got, _ := download(t, output.URL); got != text || !strings.HasPrefix(output.URL, way.at+"/") || !strings.Contains(output.URL, string(made.ID)) {
				t.Errorf("got %d bytes at %s, want the %d of the input at %s, under the job's id", len(got), output.URL, len(text), way.at)
			}
			testenv.Eventually(t, "the webhook is there", func() bool { return strings.Contains(hooks.said(), string(made.ID)) })
			for _, path := range []string{
				"/v2/" + name + "/status/" + string(made.ID), "/v2/" + name + "/requests", "/v2/" + name + "/stream/" + string(made.ID),
				"/v2/" + name + "/events?cursor=0&follow=false", "/v1/endpoints", "/v1/endpoints/" + name, "/v1/endpoints/" + name + "/workers",
				"/v1/endpoints/" + name + "/webhooks/deliveries",
			} {
				if answer := d.ask(t, "GET", path, ""); answer == "" || strings.Contains(answer, accessSecret) {
					t.Errorf("%s: got %.2000q, want something without the secret", path, answer)
				}
			}
		})
	}
	for name, text := range map[string]string{"webhooks": hooks.said(), "the log": d.log.String()} {
		if text == "" || strings.Contains(text, accessSecret) {
			t.Errorf("%s: got %.2000q, want something without the secret", name, text)
		}
	}
}

// dev is a running `flightline dev`.
type dev struct {
	binary, dir, url string
	log              *testenv.Log // of it and the workers
}

func startDev(t *testing.T) *dev {
	t.Helper()
	dir := t.TempDir()
	d := &dev{binary: filepath.Join(dir, "flightline"), dir: dir, log: &testenv.Log{}}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", d.binary, "./services/flightline")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	d.start(t, nil, d.binary, "dev", "--no-demo", "--api-key", adminKey, "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--log-level", "debug")
	testenv.Eventually(t, "flightline is ready", func() bool {
		_, rest, ready := strings.Cut(d.log.String(), "flightline ready: ")
		d.url, _, _ = strings.Cut(rest, "\n")
		return ready && strings.Contains(rest, "\n")
	})
	return d
}

// start runs a process until the test ends, with all that it starts itself.
func (d *dev) start(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.dir, d.log, d.log
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "PYTHONDONTWRITEBYTECODE=1"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the log:\n%s", d.log)
		}
	})
}

// startWorker lets a worker in as an operator does, and starts it.
func (d *dev) startWorker(t *testing.T, endpoint, python, script string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), d.binary, "worker", "env", endpoint, "--format", "json")
	cmd.Env = []string{"FLIGHTLINE_URL=" + d.url, "FLIGHTLINE_API_KEY=" + adminKey}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("worker env: %v\n%s", err, out)
	}
	var values map[string]string
	parse(t, string(out), &values)
	var env []string
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	d.start(t, env, python, script)
}

// ask returns the answer to a request, which must succeed.
func (d *dev) ask(t *testing.T, method, path, body string) string {
	t.Helper()
	status, text := d.try(t, method, path, body)
	if status != http.StatusOK {
		t.Fatalf("%s %s: got %d: %s", method, path, status, text)
	}
	return text
}

// try returns the status and the answer of a request.
func (d *dev) try(t *testing.T, method, path, body string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminKey)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

// hooks receives webhooks.
type hooks struct {
	testenv.Log
	url string
}

func startHooks(t *testing.T) *hooks {
	t.Helper()
	h := &hooks{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = r.Header.Write(h)
		_, _ = io.Copy(h, r.Body)
	}))
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

func (h *hooks) said() string { return h.String() }

// pythonOf is the interpreter that has the published packages, which the
// script e2e/clients/install puts there.
func pythonOf(t *testing.T) string {
	t.Helper()
	path := filepath.Join(require.Clients(t), "python", "bin", "python")
	if _, err := os.Stat(path); err != nil {
		require.Skip(t, "python", "the published packages are not there; run e2e/clients/install")
	}
	return path
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}
