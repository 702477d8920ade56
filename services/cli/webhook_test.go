package cli_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWebhookCommands(t *testing.T) {
	const base = " /v1/endpoints/ep/webhooks/"
	server := api{
		"GET" + base + "deliveries?failed=true&job=j1&since=2026-11-21T12%3A00%3A00Z": {200, `{"deliveries":[{"job":"j1","attempt":1,"try":3,"replay":false,"outcome":"given_up","startedAt":"0001-01-01T00:00:00Z","durationMs":12,"url":"http://h:80/","status":0,"error":"a\nb"}],"hasMore":true,"cursor":"7"}`},
		"GET" + base + "destinations": {200, `[{"destination":"http://h:80","failures":3,"paused":true,"reason":"status 500"}]`},
		"POST" + base + "replay":      {200, `{"replayed":2}`},
		"POST" + base + "pause":       {200, `{"destination":"http://h:80","failures":0,"paused":true,"reason":"r"}`},
		"POST" + base + "resume":      {200, `{"replayed":5}`},
		"POST" + base + "secret":      {200, `{"webhookSecret":"whsec_x"}`},
	}.start(t, nil)
	tests := map[string]struct{ args, want string }{
		"deliveries": {
			"deliveries ep --failed --job j1 --since 2026-11-21T12:00:00Z",
			"STARTED  JOB  TRY  OUTCOME   STATUS  TOOK  URL           WHY\n" +
				"-        j1   3    given_up  -       12ms  http://h:80/  a b\n",
		},
		"destinations":    {"destinations ep", "DESTINATION  FAILURES  PAUSED  SINCE  REASON\nhttp://h:80  3         true    -      status 500\n"},
		"replay of a job": {"replay ep j1", "REPLAYED  2\n"},
		"replay since":    {"replay ep --since 1h", "REPLAYED  2\n"},
		"replay, json":    {"replay ep j1 -o json", "{\"replayed\":2}\n"},
		"pause":           {"pause ep http://h/x --reason r", "PAUSED  http://h:80\nREASON  r\n"},
		"resume":          {"resume ep http://h/x", "REPLAYED  5\n"},
		"a new secret":    {"secret ep --overlap 1h", "SECRET           whsec_x\nBOTH SIGN UNTIL  -\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields("webhook "+test.args)...)
			want := result{out: test.want}
			if name == "deliveries" {
				want.err = "more: flightline webhook " + test.args + " --cursor 7\n"
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	for _, args := range []string{"", "replay ep", "replay ep j1 --since 1h", "replay ep --since soon", "deliveries ep --since -1h", "secret ep --overlap -1s"} {
		if got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields("webhook "+args)...); got.code != 2 {
			t.Errorf("webhook %s: got %+v, want a usage error", args, got)
		}
	}
}
