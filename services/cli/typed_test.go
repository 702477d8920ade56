package cli_test

import (
	"strings"
	"testing"
)

// A zero that was typed does not stand for the default.
func TestZerosThatWereTypedAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	server := api{
		"POST /v1/endpoints/ep/webhooks/secret": {409, `{"error":"the secret before this one still signs: wait for the end of its overlap, or give overlapMs 0","code":"in_use"}`},
	}.start(t, nil)
	for line, want := range map[string]string{
		"endpoint pause ep --for 0s":            "--for must be between 1s and 8760h, got 0s",
		"endpoint pause ep --for 10ms":          "--for must be between 1s and 8760h, got 10ms",
		"endpoint pause ep --for 9000h":         "--for must be between 1s and 8760h, got 9000h",
		"endpoint update ep --lease 0s":         "--lease must be between 10s and 1h, got 0s",
		"endpoint update ep --ttl 10us":         "--ttl must be between 10s and 168h, got 10µs",
		"run ep {} --ttl 0s":                    "--ttl must be between 10s and 168h, got 0s",
		"status ep j --ttl 0s":                  "--ttl must be between 1s and 168h, got 0s",
		"requests ep --limit 0":                 "--limit 0: must be 1 or more",
		"webhook deliveries ep --limit 0":       "--limit 0: must be 1 or more",
		"webhook secret ep --overlap -1s":       "--overlap must be between 0s and 720h, got -1s",
		"webhook secret ep --overlap 721h":      "--overlap must be between 0s and 720h, got 721h",
		"endpoint list --retry-timeout -1s":     "--retry-timeout",
		"endpoint":                              "endpoint: a subcommand is missing: create, ",
		"endpoint lst":                          "unknown command \"lst\"",
		"endpoint delete":                       "argument ID is missing; usage: flightline endpoint delete ID",
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
