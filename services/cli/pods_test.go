package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPodTemplateAndVolumeCommands(t *testing.T) {
	const (
		pod      = `{"id":"p1","name":"a\nb","desiredStatus":"RUNNING","lastStatusChange":"Created","endpointId":null,"driver":"docker","startup":{"phase":"ready","startingAt":"2026-01-31T12:00:00Z","loadingAt":"2026-01-31T12:00:01.5Z","readyAt":"2026-01-31T12:00:36Z"},"image":"i","vcpuCount":2,"memoryInGb":4,"locked":true,"costPerHr":0.5}`
		shown    = "ID            p1\nNAME          a b\nSTATUS        RUNNING\nLAST CHANGE   Created\nDRIVER        docker\nIMAGE         i\nVCPUS         2\nMEMORY        4.0 GB\nLOCKED        yes\nPHASE         ready\nSTART-UP      starting 1.5s, loading 34.5s\nCOST AN HOUR  0.5\n"
		listed   = "ID  NAME  STATUS   PHASE  ENDPOINT  DRIVER  LAST CHANGE\np1  a b   RUNNING  ready            docker  Created\n"
		template = `{"id":"t1","name":"n","imageName":"i","modelCache":["a/b","gpt2"]}`
		volume   = `{"id":"v1","name":"n","size":10,"dataCenterId":"local"}`
	)
	include := "?includeMachine=true&includeNetworkVolume=true&includeSavingsPlans=true&includeTemplate=true"
	server := api{
		"POST /v1/pods": {201, pod}, "PATCH /v1/pods/p1": {200, pod}, "GET /v1/pods/p1" + include: {200, pod}, "DELETE /v1/pods/p1": {204, ""},
		"POST /v1/pods/p1/start": {200, pod}, "POST /v1/pods/p1/stop": {200, pod}, "GET /v1/pods": {200, "[" + pod + "]"},
		"GET /v1/pods?desiredStatus=EXITED&endpointId=ep&includeWorkers=true": {200, "[]"},
		"POST /v1/templates": {200, template}, "PATCH /v1/templates/t1": {200, template}, "GET /v1/templates/t1": {200, template},
		"GET /v1/templates": {200, "[" + template + "]"}, "DELETE /v1/templates/t1": {204, ""},
		"POST /v1/networkvolumes": {200, volume}, "PATCH /v1/networkvolumes/v1": {200, volume}, "GET /v1/networkvolumes/v1": {200, volume},
		"GET /v1/networkvolumes": {200, "[" + volume + "]"}, "DELETE /v1/networkvolumes/v1": {204, ""},
	}.start(t, nil)
	const oneTemplate, oneVolume = "ID           t1\nNAME         n\nIMAGE        i\nMODEL CACHE  a/b gpt2\n", "ID           v1\nNAME         n\nSIZE         10 GB\nDATA CENTER  local\n"
	for args, want := range map[string]string{
		"pod create --image i --env A=1 --gpus 1": shown, "pod update p1 --locked=false": shown, "pod get p1": shown, "pod start p1": shown, "pod stop p1": shown,
		"pod delete p1": "DELETED  p1\n", "pod list": listed, "pod stop p1 -o json": pod + "\n",
		"pod list --status exited --endpoint ep":          "ID  NAME  STATUS  PHASE  ENDPOINT  DRIVER  LAST CHANGE\n",
		"template create --name n --image i --serverless": oneTemplate, "template update t1 --readme r": oneTemplate, "template get t1": oneTemplate,
		"template list": "ID  NAME  IMAGE\nt1  n     i\n", "template delete t1": "DELETED  t1\n",
		"volume create --name n --size 10": oneVolume, "volume update v1 --size 10": oneVolume, "volume get v1": oneVolume,
		"volume list": "ID  NAME  GB  DATA CENTER\nv1  n     10  local\n", "volume delete v1": "DELETED  v1\n",
	} {
		got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields(args)...)
		if diff := cmp.Diff(result{out: want}, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", args, diff)
		}
	}
	for _, args := range []string{"pod", "template", "volume", "pod create --image i --env A", "pod get", "volume create x"} {
		if got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields(args)...); got.code != 2 {
			t.Errorf("%s: got %+v, want a usage error", args, got)
		}
	}
}

func TestThingsAreMadeOfTheFlags(t *testing.T) {
	for _, tc := range []struct{ args, last, want string }{
		{"pod create --driver process --env A=1 --env B=c=d --command", "python handler.py", `{"dockerStartCmd":["python","handler.py"],"env":{"A":"1","B":"c=d"},"driver":"process"}`},
		{"pod create --image i --gpus 2 --vcpus 1.5 --memory 4 --port 80/http --locked", "", `{"imageName":"i","ports":["80/http"],"gpuCount":2,"vcpuCount":1.5,"memoryInGb":4,"locked":true}`},
		{"pod create --image i --capability CHOWN --capability SETUID", "", `{"imageName":"i","capabilities":["CHOWN","SETUID"]}`},
		{"pod update p1 --gpus 0 --vcpus 0 --memory 0", "", `{"gpuCount":0,"vcpuCount":0,"memoryInGb":0}`},
		{"pod update p1 --locked=false --name n", "", `{"name":"n","locked":false}`},
		{"template create --name n --image i --serverless --category CPU", "", `{"name":"n","imageName":"i","isServerless":true,"category":"CPU"}`},
		{"template update t1 --model-cache Qwen/Qwen3-8B --model-cache gpt2", "", `{"modelCache":["Qwen/Qwen3-8B","gpt2"]}`},
		{"endpoint update ep --model-cache=", "", `{"modelCache":[]}`},
		{"endpoint create ep --model-cache a/b", "", `{"id":"ep","modelCache":["a/b"]}`},
		{"volume create --name n --size 10 --data-center EU --path /x", "", `{"name":"n","size":10,"dataCenterId":"EU","path":"/x"}`},
		{"endpoint create ep --driver process --env A=1 -- python", "my worker.py", `{"id":"ep","driver":"process","command":["python","my worker.py"],"env":{"A":"1"}}`},
	} {
		args := strings.Fields(tc.args)
		if tc.last != "" {
			args = append(args, tc.last)
		}
		if diff := cmp.Diff(tc.want, sent(t, args)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.args, diff)
		}
	}
}

// sent is the body that a command sends.
func sent(t *testing.T, args []string) (body string) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body = string(raw)
		_, _ = w.Write([]byte(`{}`))
	}))
	got := run(t, map[string]string{"FLIGHTLINE_URL": web.URL}, "", args...)
	web.Close() // after the answer, so that body is written
	if got.code != 0 {
		t.Errorf("got %+v", got)
	}
	return strings.TrimSpace(body)
}

// An argument is one part of the address, whatever is in it, and a word of a
// command is no text for a shell.
func TestArgumentsStayInTheirPlace(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string // the request's path
	}{
		{[]string{"pod", "get", "../keys"}, "/v1/pods/..%2Fkeys"},
		{[]string{"template", "get", "a?x=1#y"}, "/v1/templates/a%3Fx=1%23y"},
		{[]string{"volume", "get", "a/b"}, "/v1/networkvolumes/a%2Fb"},
		{[]string{"endpoint", "get", "x\r\nHost: evil"}, "/v1/endpoints/x%0D%0AHost:%20evil"},
		{[]string{"status", "ep", "../../v1/keys"}, "/v2/ep/status/..%2F..%2Fv1%2Fkeys"},
	} {
		var seen http.Request
		server := api{}.start(t, &seen)
		run(t, map[string]string{"FLIGHTLINE_URL": server}, "", tt.args...)
		if seen.URL == nil || seen.URL.EscapedPath() != tt.want || len(seen.Header.Values("Host")) != 0 {
			t.Errorf("%q: got %v, want %s", tt.args, seen.URL, tt.want)
		}
	}
	if got, want := sent(t, []string{"template", "create", "--name", "$(id)", "--image", "i", "--command", "sh -c $(id);`id`", "--env", "A=$(id)"}),
		`{"name":"$(id)","imageName":"i","dockerStartCmd":["sh","-c","$(id);`+"`id`"+`"],"env":{"A":"$(id)"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What a flag was given may be a secret.
func TestAWrongVariableIsNotQuoted(t *testing.T) {
	for _, args := range []string{"pod create --image i --env sesame", "template update t1 --env =sesame", "endpoint update ep --env sesame"} {
		if got := run(t, map[string]string{"FLIGHTLINE_URL": "http://127.0.0.1:1"}, "", strings.Fields(args)...); got.code != 2 || strings.Contains(got.err, "sesame") || !strings.Contains(got.err, "NAME=VALUE") {
			t.Errorf("%s: got %+v, want a usage error without it", args, got)
		}
	}
}
