package cli_test

import (
	"strings"
	"testing"
)

func TestTheShellCompletesIDs(t *testing.T) {
	t.Chdir(t.TempDir())
	server := api{
		"GET /v1/endpoints":                 {200, `[{"id":"echo"},{"id":"upper"}]`},
		"GET /v2/upper/requests?limit=100":  {200, `{"requests":[{"id":"j2","status":"FAILED"},{"id":"j1","status":"COMPLETED"}],"hasMore":false}`},
		"GET /v1/endpoints/upper/workers":   {200, `[{"id":"w1"}]`},
		"GET /v1/pods":                      {200, `[{"id":"p1"}]`},
		"GET /v2/broken/requests?limit=100": {500, `{"error":"no"}`},
		"GET /v1/templates":                 {200, `[{"id":"t1"}]`},
		"GET /v1/networkvolumes":            {200, `[{"id":"v1"}]`},
		"GET /v1/keys":                      {200, `[{"id":"k1"}]`},
	}.start(t, nil)
	for line, want := range map[string]string{
		"status ":               "echo upper :4",
		"endpoint delete ":      "echo upper :4",
		"explain upper ":        "j2 j1 :4",
		"events upper ":         "j2 j1 :4",
		"webhook replay upper ": "j2 j1 :4",
		"pod restart ":          "p1 :4",
		"template get ":         "t1 :4",
		"volume get ":           "v1 :4",
		"key revoke ":           "k1 :4",
		"run upper ":            ":0",
		"key quota k1 ":         ":0",
		"status upper j1 ":      ":4",
		"endpoint create ":      ":0",
		"explain broken ":       ":1",
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		got := run(t, map[string]string{"FLIGHTLINE_URL": server, "FLIGHTLINE_RETRY_TIMEOUT": "0s"}, "", args...)
		if text := strings.Join(strings.Fields(got.out), " "); got.code != 0 || text != want {
			t.Errorf("%q: got %q (%s), want %q", line, text, got.err, want)
		}
	}
}
