package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// bench is an endpoint with workers, and what their handlers noted.
type bench struct {
	*testing.T
	s        *env
	endpoint string
	gateway  string // address for the workers
	script   string
	runs, gofile,
	dir string
}

// newBench makes an endpoint whose leases are as short as they may be. Its
// workers run this script with the Python that has the packages.
func newBench(t *testing.T, script string) *bench {
	t.Helper()
	needsPython(t, python)
	s := sharedSite(t)
	dir := t.TempDir()
	return &bench{
		T: t, s: s, gateway: s.URL, script: absolute(t, script), dir: dir,
		endpoint: s.endpoint(t, client.EndpointSpec{Lease: 10 * time.Second}),
		runs:     filepath.Join(dir, "runs"), gofile: filepath.Join(dir, "go"),
	}
}

// environment lets a worker in, as an operator does.
func (b *bench) environment(id string) (env []string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), b.s.binary, "worker", "env", b.endpoint, "--worker", id, "--format", "json", "--gateway-url", b.gateway)
	cmd.Dir = b.s.dir
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	var values map[string]string
	if err := json.Unmarshal(out, &values); err != nil {
		b.Fatalf("%s: %v", out, err)
	}
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	return env
}

func (b *bench) eventually(fact string, holds func() bool) {
	b.Helper()
	testenv.Eventually(b.T, fact, holds)
}

// submit submits a job with this input, and policy if there is one.
func (b *bench) submit(input any, policy ...client.Policy) job.ID {
	b.Helper()
	r := client.Request{Input: input}
	if len(policy) > 0 {
		r.Policy = policy[0]
	}
	j, err := b.s.api.Run(b.Context(), b.endpoint, r)
	if err != nil {
		b.Fatal(err)
	}
	return j.ID
}

// until waits for a status of the job.
func (b *bench) until(id job.ID, want job.Status) *client.Job {
	b.Helper()
	var got *client.Job
	b.eventually(fmt.Sprintf("%s is %s", id, want), func() bool {
		var err error
		if got, err = b.s.api.Status(b.Context(), b.endpoint, id); err != nil {
			b.Fatal(err)
		}
		if got.Status.Terminal() && got.Status != want {
			b.Fatalf("got %s %s %q, want %s", got.Status, got.Output, got.Error, want)
		}
		return got.Status == want
	})
	return got
}

// completes waits for the job's success with this output.
func (b *bench) completes(id job.ID, output string) *client.Job {
	b.Helper()
	got := b.until(id, job.Completed)
	if compact(got.Output) != output {
		b.Errorf("got output %.200s, want %.200s", got.Output, output)
	}
	return got
}

// noted waits for as many such notes of the handlers of this job.
func (b *bench) noted(what string, id job.ID, times int) {
	b.Helper()
	b.eventually(fmt.Sprintf("the handler notes %d times %s %s", times, what, id), func() bool { return b.count(what, id) >= times })
}

// ran compares how often the handler began with the job.
func (b *bench) ran(id job.ID, times int) {
	b.Helper()
	if got := b.count("start", id); got != times {
		b.Errorf("job %s: got %d runs of its handler, want %d", id, got, times)
	}
}

func (b *bench) count(what string, id job.ID) int {
	return strings.Count(b.notes(), what+" "+string(id)+"\n")
}

func (b *bench) notes() string {
	b.Helper()
	text, err := os.ReadFile(b.runs)
	if err != nil && !os.IsNotExist(err) {
		b.Fatal(err)
	}
	return string(text)
}

// letGo lets the handlers go on that wait.
func (b *bench) letGo() { b.Helper(); b.touch(b.gofile) }

// letGoAt lets the generators go on that wait before the chunk of this number.
func (b *bench) letGoAt(n int) { b.Helper(); b.touch(fmt.Sprintf("%s.%d", b.gofile, n)) }

func (b *bench) touch(path string) {
	b.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		b.Fatal(err)
	}
}

// counts waits until health counts these ends of attempts, and nothing open.
func (b *bench) counts(completed, failed int) {
	b.Helper()
	var h client.Health
	b.eventually(fmt.Sprintf("%d completed, %d failed, none open", completed, failed), func() bool {
		var err error
		h, err = b.s.api.Health(b.Context(), b.endpoint)
		return err == nil && h.Jobs.Completed == completed && h.Jobs.Failed == failed && h.Jobs.InQueue+h.Jobs.InProgress == 0
	})
}

// chunks reads the job's stream to its end.
func (b *bench) chunks(id job.ID) (all []string) {
	b.Helper()
	for c, err := range b.s.api.Stream(b.endpoint, id, client.StreamOptions{}).All(b.Context()) {
		if err != nil {
			b.Fatal(err)
		}
		var element struct {
			Output json.RawMessage `json:"output"`
		}
		if err := json.Unmarshal(c.Data, &element); err != nil {
			b.Fatal(err)
		}
		all = append(all, compact(element.Output))
	}
	return all
}
