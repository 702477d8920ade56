package cli_test

import (
	"strings"
	"testing"
)

func TestSystem(t *testing.T) {
	const system = `{"at":"2026-01-31T12:00:00.000Z","storage":{"usedBytes":10,"limitBytes":100,"diskFreeBytes":5,"diskBytes":50},` +
		`"streams":{"count":40,"messages":7,"bytes":9,"matched":1,"list":[{"name":"JOBS_ep","endpoint":"ep","messages":3,"bytes":4,"consumers":2,"replicas":1}]},` +
		`"consumers":{"count":2,"list":[{"name":"normal","stream":"JOBS_ep","pending":2,"ackPending":1,"redelivered":0,"waiting":0,"paused":true}]},` +
		`"processes":[{"id":"i1","role":"api","version":"v1","hostname":"box\u001b[2J"}],"findings":[{"check":"schema","state":"warn","text":"old","hint":"start control"}]}`
	server := api{
		"GET /v1/system":              {200, `{"streams":{"list":[]},"consumers":{"list":[]},"processes":[],"findings":[]}`},
		"GET /v1/system?stream=S%20x": {200, system},
		"GET /v1/system?stream=S+x":   {200, system},
		"GET /v1/system?stream=no":    {401, `{"error":"unauthorized","code":"unauthorized"}`},
	}.start(t, nil)
	env := map[string]string{"FLIGHTLINE_URL": server}
	if got := run(t, env, "", "system"); got.code != 0 || !strings.Contains(got.out, "0 of 0 listed") {
		t.Errorf("got %+v, want an empty installation", got)
	}
	got := run(t, env, "", "system", "--stream", "S x")
	for _, want := range []string{
		"finding   schema", "start control", "10 bytes used of 100; disk: 5 of 50 bytes free", "1 of 40 listed", "JOBS_ep",
		"JOBS_ep normal", "paused", "2 pending, 1 handed out, 0 redelivered", "api i1", "v1",
	} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("got %+v, want %q in it", got, want)
		}
	}
	if strings.Contains(got.out, "\x1b") {
		t.Error("a hostname moves the cursor")
	}
	if got := run(t, env, "", "system", "--stream", "no"); got.code == 0 || !strings.Contains(got.err, "unauthorized") {
		t.Errorf("got %+v, want it refused", got)
	}
}
