package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestExplainShowsTheReasonFirst(t *testing.T) {
	server := api{
		"GET /v2/ep/explain/j1": {200, `{"id":"j1","status":"IN_QUEUE","reason":"waiting: 1 job ahead, 3 of 3 workers busy","queue":{"position":2,"positionMost":2,"exact":true,"inQueue":5},` +
			`"workers":{"running":3},"autoscaler":true,"scaling":{"wanted":3,"current":3,"text":"as many as there may be"},"lastWorkerError":{"workerId":"w1","text":"exited\u001b with 1"}}`},
		"GET /v2/ep/explain/j2": {200, `{"id":"j2","status":"IN_QUEUE","reason":"waiting","queue":{"position":700,"positionMost":900,"inQueue":1000}}`},
		"GET /v2/ep/explain/j4": {200, `{"id":"j4","status":"COMPLETED","reason":"completed","workerId":"w1","lastWorkerError":{"workerId":"w0","text":"exited","count":3},` +
			`"coldStart":{"phase":"ready","pullingAt":"2026-01-31T12:00:00Z","startingAt":"2026-01-31T12:00:10Z","loadingAt":"2026-01-31T12:00:11Z","readyAt":"2026-01-31T12:00:46Z"}}`},
		"GET /v2/ep/explain/j3": {404, `{"error":"no such job","code":"job_not_found"}`},
	}.start(t, nil)
	for args, want := range map[string]result{
		"explain ep j1": {out: "ID                 j1\nSTATUS             IN_QUEUE\nREASON             waiting: 1 job ahead, 3 of 3 workers busy\nPOSITION           2 of 5\n" +
			"WORKERS            3 running, 0 idle, 0 initializing, 0 throttled, 0 unhealthy\nAUTOSCALER         wants 3, had 3 at -: as many as there may be\n" +
			"LAST WORKER ERROR  w1 at -: exited with 1\nEXPIRES            -\n"},
		"explain ep j2": {out: "ID          j2\nSTATUS      IN_QUEUE\nREASON      waiting\nPOSITION    700 to 900 of 1000\n" +
			"WORKERS     0 running, 0 idle, 0 initializing, 0 throttled, 0 unhealthy\nAUTOSCALER  none runs\nEXPIRES     -\n"},
		"explain ep j4": {out: "ID                 j4\nSTATUS             COMPLETED\nREASON             completed\n" +
			"WORKERS            0 running, 0 idle, 0 initializing, 0 throttled, 0 unhealthy\nAUTOSCALER         none runs\n" +
			"LAST WORKER ERROR  w0 at -: exited\nWORKERS FAILED     3 in the last hour\nWORKER             w1\nCOLD START         pulling 10s, starting 1s, loading 35s\nEXPIRES            -\n"},
		"explain ep j3": {code: 4, err: "flightline: no such job (HTTP 404, job_not_found)\n"},
	} {
		if got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields(args)...); got != want {
			t.Errorf("%s: got %+v, want %+v", args, got, want)
		}
	}
}

// What the flags and the words after "--" become.
func TestFleetFlags(t *testing.T) {
	var sent string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = r.Method + " " + r.URL.Path + " " + string(body)
		_, _ = w.Write([]byte(`{"id":"ep"}`))
	}))
	defer server.Close()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"a process":      {[]string{"create", "ep", "--driver", "process", "--", "python3", "-u", "w.py"}, `POST /v1/endpoints {"id":"ep","driver":"process","command":["python3","-u","w.py"]}`},
		"a container":    {[]string{"create", "ep", "--driver", "docker", "--image", "i:1", "--gpus", "1", "--vcpus", "0.5", "--memory", "4", "--env", "A=b=c", "--env", "D="}, `POST /v1/endpoints {"id":"ep","driver":"docker","imageName":"i:1","env":{"A":"b=c","D":""},"gpuCount":1,"vcpuCount":0.5,"memoryInGb":4}`},
		"a scaler":       {[]string{"update", "ep", "--scaler", "REQUEST_COUNT", "--scaler-value", "2", "--idle-timeout", "1m", "--template", "t"}, `PATCH /v1/endpoints/ep {"scalerType":"REQUEST_COUNT","scalerValue":2,"idleTimeout":60,"templateId":"t"}`},
		"what GPUs":      {[]string{"create", "ep", "--gpus", "1", "--gpu-type", "NVIDIA L4", "--min-vram", "20", "--min-cuda", "12.4", "--gpu-share", "0.5", "--sleep-gpu-share", "0", "--priority", "-1", "--min-hold", "5s", "--max-swap-wait", "1m"}, `POST /v1/endpoints {"id":"ep","sleepGpuShare":0,"gpuCount":1,"gpuTypeIds":["NVIDIA L4"],"minVramGb":20,"minCudaVersion":"12.4","gpuShare":0.5,"priority":-1,"minHoldMs":5000,"maxSwapWaitMs":60000}`},
		"no GPUs":        {[]string{"update", "ep", "--gpus", "0"}, `PATCH /v1/endpoints/ep {"gpuCount":0}`},
		"a pause":        {[]string{"pause", "ep", "--for", "10m"}, `POST /v1/endpoints/ep/pause {"durationMs":600000}`},
		"an open pause":  {[]string{"pause", "ep"}, `POST /v1/endpoints/ep/pause {}`},
		"its end":        {[]string{"resume", "ep"}, `POST /v1/endpoints/ep/resume `},
		"half a second":  {[]string{"update", "ep", "--idle-timeout", "1500ms"}, ""},
		"env without =":  {[]string{"update", "ep", "--env", "secret"}, ""},
		"two ids":        {[]string{"create", "ep", "other"}, ""},
		"pause backward": {[]string{"pause", "ep", "--for", "-1s"}, ""},
	} {
		sent = ""
		got := run(t, map[string]string{"FLIGHTLINE_URL": server.URL}, "", append([]string{"endpoint"}, tt.args...)...)
		if sent != tt.want || (got.code == 0) != (tt.want != "") || strings.Contains(got.err, "secret") {
			t.Errorf("%s: sent %q, want %q; got %+v", name, sent, tt.want, got)
		}
	}
}
