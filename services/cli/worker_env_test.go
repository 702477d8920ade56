package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"flightline/services/cli"
)

// runRole runs a command line that has the role worker, which says what it got.
func runRole(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	role := &cobra.Command{
		Use: "worker ENDPOINT -- COMMAND...",
		RunE: func(c *cobra.Command, args []string) error {
			c.Println("role", strings.Join(args, " "))
			return nil
		},
	}
	role.Flags().String("url", "", "")
	role.Flags().String("data", "", "")
	code := cli.Run(t.Context(), cli.Config{Env: env, In: strings.NewReader(""), Out: &out, Err: &errs, Roles: []*cobra.Command{role}}, args)
	return result{code, out.String(), errs.String()}
}

const letIn = `{"id":"w1","endpoint":"ep","token":"fw_a'b","pingIntervalMs":5000}`

func TestWorkerEnvPrintsTheWholeEnvironment(t *testing.T) {
	t.Chdir(t.TempDir())
	url := api{"GET /v1/endpoints/ep/workers": {200, `[]`}, "POST /v1/endpoints/ep/workers": {200, letIn}}.start(t, nil)
	env := map[string]string{"FLIGHTLINE_URL": url, "BUCKET_ENDPOINT_URL": "http://minio:9000"}
	want := strings.ReplaceAll(`RUNPOD_WEBHOOK_GET_JOB=BASE/v2/ep/job-take/w1?gpu=any
RUNPOD_WEBHOOK_POST_OUTPUT=BASE/v2/ep/job-done/w1/$ID?gpu=any
RUNPOD_WEBHOOK_POST_STREAM=BASE/v2/ep/job-stream/w1/$ID?gpu=any
RUNPOD_WEBHOOK_PING=BASE/v2/ep/ping/w1?gpu=any
RUNPOD_PING_INTERVAL=5000
RUNPOD_AI_API_KEY=fw_a'b
RUNPOD_POD_ID=w1
RUNPOD_ENDPOINT_ID=ep
RUNPOD_SKIP_AUTO_SYSTEM_CHECKS=true
RUNPOD_LOG_LEVEL=INFO
RUNPOD_DEBUG_LEVEL=INFO
BUCKET_ENDPOINT_URL=http://minio:9000
`, "BASE", url)
	if got := runRole(t, env, "worker", "env", "ep", "--worker", "w1"); got.code != 0 || got.out != want {
		t.Errorf("got %d %s\n%s\nwant\n%s", got.code, got.err, got.out, want)
	}
	elsewhere := runRole(t, env, "worker", "env", "ep", "--gateway-url", "http://gate:1/")
	if want := strings.ReplaceAll(want, url, "http://gate:1"); elsewhere.out != want {
		t.Errorf("got\n%s\nwant\n%s", elsewhere.out, want)
	}
}

func TestWorkerEnvHasWhatTheEndpointSets(t *testing.T) {
	t.Chdir(t.TempDir())
	const answer = `{"id":"w1","endpoint":"ep","token":"fw_x","pingIntervalMs":5000,"env":%s}`
	here := map[string]string{"BUCKET_ENDPOINT_URL": "http://here", "BUCKET_ACCESS_KEY_ID": "mine", "BUCKET_NAME": "b"}
	for set, want := range map[string][]string{
		`{"MODEL":"tiny"}`: {"BUCKET_ACCESS_KEY_ID=mine", "BUCKET_ENDPOINT_URL=http://here", "BUCKET_NAME=b", "MODEL=tiny"},
		`{"BUCKET_ENDPOINT_URL":"http://there","BUCKET_SECRET_ACCESS_KEY":"s"}`: { // none of another's keys
			"BUCKET_ENDPOINT_URL=http://there", "BUCKET_SECRET_ACCESS_KEY=s",
		},
		`{"RUNPOD_AI_API_KEY":"its own","RUNPOD_LOG_LEVEL":"DEBUG","BUCKET_NAME":"c"}`: {"RUNPOD_AI_API_KEY=fw_x", "RUNPOD_LOG_LEVEL=DEBUG", "BUCKET_NAME=c"},
	} {
		env := map[string]string{"FLIGHTLINE_URL": api{"GET /v1/endpoints/ep/workers": {200, `[]`}, "POST /v1/endpoints/ep/workers": {200, fmt.Sprintf(answer, set)}}.start(t, nil)}
		maps.Copy(env, here)
		got := runRole(t, env, "worker", "env", "ep", "--worker", "w1")
		for _, line := range want {
			if !strings.Contains("\n"+got.out, "\n"+line+"\n") {
				t.Errorf("%s: got %d %s\n%s\nwant the line %s", set, got.code, got.err, got.out, line)
			}
		}
		if buckets := strings.Count(strings.Join(want, "\n"), "BUCKET_"); strings.Count(got.out, "BUCKET_") != buckets {
			t.Errorf("%s: got\n%s\nwant %d variables of a bucket", set, got.out, buckets)
		}
	}
}

func TestWorkerEnvHasOtherForms(t *testing.T) {
	t.Chdir(t.TempDir())
	env := map[string]string{"FLIGHTLINE_URL": api{"POST /v1/endpoints/ep/workers": {200, letIn}}.start(t, nil)}
	for form, want := range map[string]string{
		"export": `export RUNPOD_AI_API_KEY='fw_a'\''b'` + "\n",
		"docker": ` -e 'RUNPOD_AI_API_KEY=fw_a'\''b' -e `,
		"env":    "\nRUNPOD_AI_API_KEY=fw_a'b\n",
	} {
		if got := runRole(t, env, "worker", "env", "ep", "--format", form); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%s: got %d %s %s, want it to have %s", form, got.code, got.err, got.out, want)
		}
	}
	var values map[string]string
	got := runRole(t, env, "worker", "env", "ep", "--format", "json")
	if err := json.Unmarshal([]byte(got.out), &values); err != nil || values["RUNPOD_AI_API_KEY"] != "fw_a'b" || values["RUNPOD_POD_ID"] != "w1" {
		t.Errorf("got %s, %v", got.out, err)
	}
	if same := runRole(t, env, "worker", "env", "ep", "-o", "json"); same.out != got.out {
		t.Errorf("-o json: got %s, want %s", same.out, got.out)
	}
	env["FLIGHTLINE_URL"] = api{"POST /v1/endpoints/ep/workers": {200, `{"id":"w1","endpoint":"ep","token":"t","env":{"X;touch pwned;Y":"z"}}`}}.start(t, nil)
	if got := runRole(t, env, "worker", "env", "ep", "--format", "export"); got.code == 0 || got.out != "" || !strings.Contains(got.err, `variable "X;touch pwned;Y": no shell can hold that name`) {
		t.Errorf("got %+v, want that the shell is given no such name", got)
	}
	if got := runRole(t, env, "worker", "env", "ep", "--format", "yaml"); got.code != 2 || got.out != "" {
		t.Errorf("got %d %s, want a usage error and no token", got.code, got.out)
	}
}

// A token that nothing has would let nothing in, and its worker would be listed.
func TestWorkerEnvRevokesATokenThatItCannotPrint(t *testing.T) {
	t.Chdir(t.TempDir())
	var last http.Request
	url := api{
		"POST /v1/endpoints/ep/workers":      {200, `{"id":"w1","endpoint":"ep","token":"t","env":{"a-b":"c"}}`},
		"DELETE /v1/endpoints/ep/workers/w1": {204, ""},
	}.start(t, &last)
	got := runRole(t, map[string]string{"FLIGHTLINE_URL": url}, "worker", "env", "ep", "--format", "export")
	if got.code == 0 || !strings.Contains(got.err, `variable "a-b"`) || last.Method != http.MethodDelete {
		t.Errorf("got %+v and at last a %s, want the token revoked", got, last.Method)
	}
}

// A new token ends the old one, so that a worker that runs would be refused from then on.
func TestWorkerEnvRefusesAWorkerThatRuns(t *testing.T) {
	t.Chdir(t.TempDir())
	const drain = "worker drain ep w1 --retry-timeout 2s), or give --rotate"
	const list = `[{"id":"w1","protocol":"http","state":%s,"draining":%t,"running":%s}]`
	for name, tt := range map[string]struct {
		worker string // what the list says of w1
		args   string
		why    string // the worker is refused, "" if it is not
	}{
		"idle":                {fmt.Sprintf(list, `"idle"`, false, `[]`), "", drain},
		"running a job":       {fmt.Sprintf(list, `"running"`, false, `["j"]`), "", drain},
		"draining with a job": {fmt.Sprintf(list, `"running"`, true, `["j"]`), "", "worker w1 drains, and a new token would cut it off: wait until it has ended its jobs, or give --rotate"},
		"drained":             {fmt.Sprintf(list, `"idle"`, true, `[]`), "", ""},
		"silent":              {fmt.Sprintf(list, `""`, false, `[]`), "", ""},
		"idle, --rotate":      {fmt.Sprintf(list, `"idle"`, false, `[]`), " --rotate", ""},
		"another one":         {`[{"id":"w2","state":"idle","running":[]}]`, "", ""},
	} {
		env := map[string]string{"FLIGHTLINE_URL": api{
			"GET /v1/endpoints/ep/workers": {200, tt.worker}, "POST /v1/endpoints/ep/workers": {200, letIn},
		}.start(t, nil)}
		got := runRole(t, env, strings.Fields("worker env ep --worker w1 --retry-timeout 2s"+tt.args)...)
		let := tt.why == ""
		if let != (got.code == 0) || let != strings.Contains(got.out, "RUNPOD_AI_API_KEY=") || !strings.Contains(got.err, tt.why) {
			t.Errorf("%s: got %+v, want it refused: %q", name, got, tt.why)
		}
	}
}

func TestWorkerDrain(t *testing.T) {
	t.Chdir(t.TempDir())
	env := map[string]string{"FLIGHTLINE_URL": api{
		"POST /v1/endpoints/ep/workers/w1/drain": {200, `{"id":"w1","draining":true}`},
		"POST /v1/endpoints/ep/workers/w2/drain": {404, `{"error":"not found","code":"not_found"}`},
	}.start(t, nil)}
	if got := runRole(t, env, "worker", "drain", "ep", "w1"); got.code != 0 || got.out != "DRAINING  w1\n" {
		t.Errorf("got %d %s %s", got.code, got.out, got.err)
	}
	if got := runRole(t, env, "worker", "drain", "ep", "w2"); got.code == 0 {
		t.Errorf("got %d %s, want an error", got.code, got.out)
	}
}

func TestTheWordsOfWorkerLeaveTheRoleAlone(t *testing.T) {
	got := runRole(t, nil, "worker", "echo", "--", "cat", "env")
	if got.code != 0 || !strings.Contains(got.out+got.err, "role echo cat env") {
		t.Errorf("got %d %s %s", got.code, got.out, got.err)
	}
}

func TestEndpointWorkers(t *testing.T) {
	t.Chdir(t.TempDir())
	env := map[string]string{"FLIGHTLINE_URL": api{
		"GET /v1/endpoints/ep/workers": {200, `[{"id":"w1","protocol":"http","state":"idle","running":[],"startup":{"phase":"ready","readyAt":"2026-01-31T12:00:36Z"}},{"id":"w2","protocol":"nats","state":"running","draining":true,"running":["j1","j2"]}]`},
	}.start(t, nil)}
	want := "ID  PROTOCOL  STATE    PHASE  DRAINING  RUNNING\n" +
		"w1  http      idle     ready            \n" +
		"w2  nats      running         yes       j1 j2\n"
	if got := runRole(t, env, "endpoint", "workers", "ep"); got.code != 0 || got.out != want {
		t.Errorf("got code %d and %q, want %q", got.code, got.out, want)
	}
}
