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
		"endpoint pause ep --for 0s":             "--for must be between 1s and 8760h, got 0s",
		"endpoint pause ep --for 10ms":           "--for must be between 1s and 8760h, got 10ms",
		"endpoint pause ep --for 9000h":          "--for must be between 1s and 8760h, got 9000h",
		"endpoint update ep --lease 0s":          "--lease must be between 10s and 1h, got 0s",
		"endpoint update ep --ttl 10us":          "--ttl must be between 10s and 168h, got 10µs",
		"run ep {} --ttl 0s":                     "--ttl must be between 10s and 168h, got 0s",
		"status ep j --ttl 0s":                   "--ttl must be between 1s and 168h, got 0s",
		"requests ep --limit 0":                  "--limit must be between 1 and 100, got 0",
		"webhook deliveries ep --limit 0":        "--limit must be between 1 and 500, got 0",
		"requests ep --limit 101":                "--limit must be between 1 and 100, got 101",
		"endpoint scaling ep --limit 0":          "--limit must be between 1 and 100, got 0",
		"endpoint update ep --max-queue-jobs 0":  "--max-queue-jobs must be between 1 and 1000000000, got 0",
		"endpoint create ep --max-queue-bytes 0": "--max-queue-bytes must be between 33554432 and 1000000000000, got 0",
		"volume update v --size 0":               "--size must be between 1 and 1048576, got 0",
		"stats ep --step 0s":                     "--step must be between 1m and 1h, got 0s",
		"requests ep --worker=":                  `--worker must not be empty, got ""`,
		"requests ep --fingerprint=":             "--fingerprint must not be empty",
		"requests ep --id=":                      "--id must not be empty",
		"requests ep --status=":                  "--status must not be empty",
		"events ep --type=":                      "--type must not be empty",
		"webhook deliveries ep --job=":           "--job must not be empty",
		"pod list --endpoint=":                   "--endpoint must not be empty",
		"endpoint update ep --driver=":           "--driver must not be empty",
		"pod update p --name=":                   "--name must not be empty",
		"run ep {} --idempotency-key=":           "--idempotency-key must not be empty",
		"requests ep --api-key=":                 "--api-key must not be empty",
		"webhook secret ep --overlap -1s":        "--overlap must be between 0s and 720h, got -1s",
		"webhook secret ep --overlap 721h":       "--overlap must be between 0s and 720h, got 721h",
		"endpoint list --retry-timeout -1s":      "--retry-timeout",
		"endpoint":                               "endpoint: a subcommand is missing: create, ",
		"endpoint lst":                           "unknown command \"lst\"",
		"endpoint delete":                        "argument ID is missing; usage: flightline endpoint delete ID",
		"endpoint get ep --forse":                "unknown flag: --forse",
		"pod begin x":                            "unknown command \"begin\"",
		"webhook deliver ep":                     "unknown command \"deliver\"",
		"endpoint create ep --workers-max many":  `--workers-max must be a whole number, got "many"`,
		"endpoint update ep --limit run=x":       "--limit",
		"endpoint delete ep --force=maybe":       `--force must be true or false, got "maybe"`,
		"healthchek":                             "unknown command \"healthchek\"",
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

// Without its text, an argument stands for no other thing, and names nothing.
func TestAnEmptyArgumentIsRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"argument ENDPOINT must not be empty; usage: flightline failures":    {"failures", ""},
		"argument JOB must not be empty":                                     {"events", "ep", ""},
		"argument NAME must not be empty; usage: flightline key create NAME": {"key", "create", "", "--scope", "read:*"},
		"argument FIELD=NUMBER must not be empty":                            {"key", "quota", "k", "requests=1", ""},
	} {
		if got := run(t, map[string]string{"FLIGHTLINE_URL": "http://127.0.0.1:1"}, "", args...); got.code != 2 || !strings.Contains(got.err, want) {
			t.Errorf("%q: got %+v, want 2 with %q", args, got, want)
		}
	}
}

// What is empty takes a setting away where the API has it so.
func TestWhatIsEmptyIsSent(t *testing.T) {
	for line, want := range map[string]string{
		"endpoint update ep --name= --image= --template= --min-cuda=":              `{"name":"","templateId":"","imageName":"","minCudaVersion":""}`,
		"endpoint update ep --gpu-type= --model-cache=":                            `{"modelCache":[],"gpuTypeIds":[]}`,
		"endpoint create ep --image= -- x":                                         `{"id":"ep","driver":"process","imageName":"","command":["x"]}`,
		"pod update p --image= --command= --mount= --disk 0 --port= --capability=": `{"imageName":"","dockerStartCmd":[],"ports":[],"containerDiskInGb":0,"volumeMountPath":"","capabilities":[]}`,
		"template update t --readme= --category=":                                  `{"readme":"","category":""}`,
	} {
		if got := sent(t, strings.Fields(line)); got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}
