package app

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"flightline/services/cli"
	"flightline/shared/process"
)

// commands are those of this package.
func commands(env map[string]string) []*cobra.Command {
	return append(AdminCommands(env, ""), Command(env, "", "flightline"), ServeCommand(env, ""), WorkerCommand(env, ""), NATSConfigCommand(env), ReaperCommand())
}

// refusal runs a command of this line, which must refuse a setting.
func refusal(t *testing.T, env map[string]string, line ...string) error {
	t.Helper()
	root := &cobra.Command{Use: "flightline", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(commands(env)...)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(line)
	return root.ExecuteContext(t.Context())
}

func TestAutoSharesFsyncsWhereThereAreHardLinks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		setting   string
		hardLinks bool
		want      string
	}{
		{"auto", true, "group"},
		{"auto", false, "always"},
		{"always", false, "always"},
		{"always", true, "always"},
		{"group", false, "group"},
		{"group", true, "group"},
		{"interval", false, "interval"},
		{"interval", true, "interval"},
	}
	for _, test := range tests {
		if got := syncOn(test.setting, test.hardLinks); got != test.want {
			t.Errorf("%s, hard links %v: got %s, want %s", test.setting, test.hardLinks, got, test.want)
		}
	}
}

// Each names the setting and what it must be, before anything is begun.
func TestSettingsThatCannotWorkAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	none := filepath.Join(t.TempDir(), "none")
	for line, want := range map[string]string{
		"serve all --partitions 0":                        "--partitions 0: must be 1 to 1024",
		"serve all --partitions 1025":                     "--partitions 1025: must be 1 to 1024",
		"serve all --replicas 2":                          "--replicas 2: must be 1 or 3",
		"serve all --events-max-bytes 1":                  "--events-max-bytes 1: must be 0, or 16777216 or more",
		"serve all --events-retention 1m":                 "--events-retention 1m0s: must be 1h or more",
		"serve all --drain-delay 2m":                      "--drain-delay 2m0s: must be 0 to 1m0s",
		"dev --worker-drain-timeout 169h":                 "--worker-drain-timeout 169h0m0s: must be 0 to 168h0m0s",
		"dev --worker-shutdown-timeout -1s":               "--worker-shutdown-timeout -1s: must be 0 to 10m0s",
		"serve all --listen foo":                          `--listen "foo": must be an address`,
		"serve all --listen 127.0.0.1:99999":              "--listen",
		"serve all --metrics-listen foo":                  `--metrics-listen "foo": must be an address like 127.0.0.1:8080 or off`,
		"serve all --bootstrap-key short":                 "--bootstrap-key: must have 8 to 512 bytes, not 5",
		"serve all --price-catalog " + none:               "--price-catalog",
		"serve all --limits " + none:                      "--limits must be default, off or a file",
		"serve all --streams some":                        "--create-streams must be true or false, got \"some\"",
		"serve all --nats-url foo://u:hush@bar":           "--nats-url: must be nats://HOST:PORT",
		"serve all --nats-password hush":                  "--nats-password: must have a --nats-user",
		"serve all --nats-inbox-prefix a.>":               "--nats-inbox-prefix",
		"serve all --nats-creds " + none:                  "--nats-creds",
		"serve all --nats-ca " + none:                     "--nats-ca",
		"serve all --nats-cert " + none:                   "--nats-cert and --nats-key go together",
		"serve all --webhook-public-url foo":              "--webhook-public-url: must be an address that begins with http:// or https://",
		"serve all --webhook-max-body 0":                  "--webhook-max-body 0: must be 1 or more",
		"serve all --webhook-max-body -1":                 "--webhook-max-body -1: must be 1 or more",
		"serve all --webhook-timeout 0s":                  "--webhook-timeout 0s: must be more than 0s, and 20s at most",
		"serve all --webhook-timeout 21s":                 "--webhook-timeout 21s",
		"serve all --webhook-allow-networks x":            "--webhook-allow-networks",
		"serve all --drivers vm":                          "--drivers",
		"serve autoscaler --drivers process":              "--gateway-url: must be the address of a gateway: this process has none",
		"serve all --gateway-url foo":                     "--gateway-url: must be an address",
		"serve console --console-api-url http://u:hush@h": "--console-api-url: client: the address of h must have no user",
		"serve all --docker-host foo":                     "--docker-host: must be an address that begins with unix:// or tcp://",
		"serve all --docker-network a/b":                  "--docker-network",
		"serve all --fleet-folder=":                       "--fleet-folder",
		"serve all --volume-root /":                       `--volume-root "/": must be an absolute path without '..', and not /`,
		"dev --gpus /nonexistent":                         "--gpus: open /nonexistent",
		"dev --model-cache-folder /dev/null":              `--model-cache-folder "/dev/null": must be a folder`,
		"dev --volume-root volumes":                       "--volume-root",
		"dev --volume-root /srv/../etc":                   "--volume-root",
		"dev --docker-capabilities cap_chown":             `--docker-capabilities "cap_chown": must be capabilities like CHOWN,SETUID, or ALL`,
		"serve nothing":                                   `no role "nothing"`,
		"dev --listen foo":                                "--listen",
		"dev --nats-listen foo":                           `--nats-listen "foo": must be an address like 127.0.0.1:8080 or off`,
		"dev --api-key short":                             "--api-key: must have 8 to 512 bytes, not 5",
		"dev --docker-host foo":                           "--docker-host",
		"dev --drivers vm":                                "--drivers",
		"dev --sync never":                                "--sync",
		"dev --data=":                                     "--data must name a folder",
		"dev --log-level loud":                            "--log-level",
		"dev --log-format xml":                            "--log-format",
		"worker ep --concurrency 10001 -- cat":            "--concurrency 10001: must be 1 to 10000",
		"worker ep --concurrency 0 -- cat":                "--concurrency 0: must be 1 to 10000",
		"worker ep --grace -1s -- cat":                    "--grace -1s: must be 0s or more",
		"worker ep --url foo":                             "--url: must be an address",
		"worker ep --nats-url foo://x -- cat":             "--nats-url",
		"backup d --nats-url foo://x":                     "--nats-url",
		"restore d --replicas 2":                          "--replicas 2: must be 1 or 3",
		"doctor --replicas 0":                             "--replicas 0: must be 1 or 3",
		"doctor --partitions 0":                           "--partitions 0",
		"doctor --events-retention 0s":                    "--events-retention 0s",
		"nats-config --partitions 0":                      "--partitions 0",
		"nats-config --listen foo":                        "--listen",
		"nats-config --endpoint a.b":                      "--endpoint",
		"nats-config --cluster a:1,b":                     "--cluster",
		"nats-config --cluster a:1,b:1":                   "--cluster: must have a --dir",
		`nats-config --cluster a:1,b"c:1`:                 `--cluster "b\"c:1": must be an address`,
		"nats-config --api-key short":                     "--api-key",
	} {
		err := refusal(t, nil, strings.Fields(line)...)
		if _, usage := errors.AsType[*cli.UsageError](err); !usage || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v, want a UsageError with %q", line, err, want)
		}
	}
}

func TestAVariableThatCannotBeReadIsNamed(t *testing.T) {
	for variable, want := range map[string]string{
		"FLIGHTLINE_PARTITIONS":         "FLIGHTLINE_PARTITIONS: must be a whole number",
		"FLIGHTLINE_DRAIN_DELAY":        "FLIGHTLINE_DRAIN_DELAY: must be a duration like 90s or 10m",
		"FLIGHTLINE_WEBHOOK_ALLOW_HTTP": "FLIGHTLINE_WEBHOOK_ALLOW_HTTP: must be true or false",
	} {
		err := refusal(t, map[string]string{variable: "x"}, "serve", "all")
		if _, usage := errors.AsType[*cli.UsageError](err); !usage || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A client could not send such a key.
func TestAnAPIKeyThatNoHeaderCanHaveIsRefused(t *testing.T) {
	for _, key := range []string{"hush-hush\n", "hush\thush", " hush-hush", "hush-hush "} {
		err := keyOf("api-key", key)
		if _, usage := errors.AsType[*cli.UsageError](err); !usage || !strings.Contains(err.Error(), "--api-key: must have no control characters") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: got %v, want a UsageError without the key", key, err)
		}
	}
	if err := keyOf("api-key", "hush hush"); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	t.Chdir(t.TempDir())
	for line, want := range map[string]string{
		"backup":           "argument DIR is missing; usage: flightline backup DIR",
		"restore":          "argument DIR is missing; usage: flightline restore DIR",
		"restore a b":      `unexpected argument "b"; usage: flightline restore DIR`,
		"serve":            "argument ROLE is missing; usage: flightline serve ROLE...",
		"worker":           "argument ENDPOINT is missing; usage: flightline worker ENDPOINT [-- COMMAND...]",
		"worker -- cat":    "argument ENDPOINT is missing",
		"worker ep cat":    `unexpected argument "cat"; usage: flightline worker ENDPOINT [-- COMMAND...]`,
		"doctor extra":     `unexpected argument "extra"; usage: flightline doctor`,
		"dev extra":        `unexpected argument "extra"; usage: flightline dev`,
		"nats-config more": `unexpected argument "more"; usage: flightline nats-config`,
	} {
		var errs bytes.Buffer
		code := cli.Run(t.Context(), cli.Config{Out: io.Discard, Err: &errs, Roles: commands(nil)}, strings.Fields(line))
		if code != process.ExitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: got %d %s, want %d with %q", line, code, &errs, process.ExitUsage, want)
		}
	}
}

// Others reach NATS once somebody says so.
func TestTheConfigurationOfNATSListensOnLoopback(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"nats-config", `listen: "127.0.0.1:4222"`},
		{"nats-config --listen 0.0.0.0:4222", `listen: "0.0.0.0:4222"`},
	} {
		var out bytes.Buffer
		code := cli.Run(t.Context(), cli.Config{Out: &out, Err: io.Discard, Roles: commands(nil)}, strings.Fields(test.line))
		if code != process.ExitOK || !strings.Contains(out.String(), test.want) {
			t.Errorf("%s: got %d %.200s…, want %s", test.line, code, &out, test.want)
		}
	}
}
