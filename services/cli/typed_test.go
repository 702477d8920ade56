package cli_test

import (
	"strings"
	"testing"
)

// A zero that was typed does not stand for the default.
func TestZerosThatWereTypedAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	server := api{
		"POST /v1/endpoints/ep/webhooks/secret": {400, `{"error":"the secret before this one still signs: wait for the end of its overlap, or give overlapMs 0","code":"invalid_request"}`},
	}.start(t, nil)
	for line, want := range map[string]string{
		"endpoint pause ep --for 0s":            "--for 0s: must be 1ms or more",
		"endpoint pause ep --for 10ms":          "--for 10ms: must be 1s to 8760h0m0s",
		"endpoint pause ep --for 9000h":         "--for 9000h0m0s: must be",
		"endpoint update ep --lease 0s":         "--lease 0s: must be",
		"endpoint update ep --ttl 10us":         "--ttl 10µs: must be",
		"run ep {} --ttl 0s":                    "--ttl 0s: must be",
		"status ep j --ttl 0s":                  "--ttl 0s: must be",
		"requests ep --limit 0":                 "--limit 0: must be 1 or more",
		"webhook deliveries ep --limit 0":       "--limit 0: must be 1 or more",
		"webhook secret ep --overlap -1s":       "--overlap -1s: must be 0s or more",
		"webhook secret ep --overlap 721h":      "--overlap 721h0m0s: must be at most 720h0m0s",
		"endpoint list --patience -1s":          "--patience",
		"endpoint":                              "what should be done with it",
		"endpoint lst":                          "unknown command \"lst\"",
		"endpoint delete":                       "accepts 1 arg",
		"endpoint get ep --forse":               "unknown flag: --forse",
		"pod begin x":                           "unknown command \"begin\"",
		"webhook deliver ep":                    "unknown command \"deliver\"",
		"endpoint create ep --workers-max many": "invalid argument \"many\"",
		"endpoint update ep --limit run=x":      "--limit",
		"endpoint delete ep --force=maybe":      "invalid argument \"maybe\"",
		"healthchek":                            "unknown command \"healthchek\"",
	} {
		got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields(line)...)
		if got.code != 2 || !strings.Contains(got.err, want) || !strings.Contains(got.err, "--help") {
			t.Errorf("%s: got %d %s, want 2 with %q", line, got.code, got.err, want)
		}
	}
	got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", "webhook", "secret", "ep", "--overlap", "24h")
	if got.code != 1 || !strings.Contains(got.err, "--overlap 0s") || strings.Contains(got.err, "overlapMs") {
		t.Errorf("got %d %s, want it in the words of the command", got.code, got.err)
	}
}
