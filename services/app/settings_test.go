package app

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"flightline/services/cli"
	"flightline/shared/testenv/port"
)

func TestAFlagComesBeforeAVariableAndThatBeforeTheDefault(t *testing.T) {
	tests := map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"default":  {nil, nil, "127.0.0.1:8080"},
		"variable": {map[string]string{"FLIGHTLINE_LISTEN": "h:1"}, nil, "h:1"},
		"flag":     {map[string]string{"FLIGHTLINE_LISTEN": "h:1"}, []string{"--listen", "h:2"}, "h:2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := parsed(test.env, test.args...)
			if err != nil || cfg.Listen != test.want {
				t.Errorf("got %q, %v, want %q", cfg.Listen, err, test.want)
			}
		})
	}
}

// Flags and variables that were renamed are known by both names for a release.
func TestOldNamesOfSettingsWork(t *testing.T) {
	type got struct {
		age, grace     time.Duration
		inbox, catalog string
		waits          bool
	}
	want := got{2 * time.Hour, time.Second, "_IN", "c.json", true}
	for name, test := range map[string]struct {
		env  map[string]string
		args string
	}{
		"flags":     {nil, "--events-retention 2h --worker-shutdown-timeout 1s --nats-inbox-prefix _IN --price-catalog c.json --create-streams=false"},
		"old flags": {nil, "--events-age 2h --fleet-grace 1s --nats-inbox _IN --catalog c.json --streams wait"},
		"variables": {map[string]string{
			"FLIGHTLINE_EVENTS_RETENTION": "2h", "FLIGHTLINE_WORKER_SHUTDOWN_TIMEOUT": "1s", "FLIGHTLINE_NATS_INBOX_PREFIX": "_IN",
			"FLIGHTLINE_PRICE_CATALOG": "c.json", "FLIGHTLINE_CREATE_STREAMS": "false",
		}, ""},
		"old variables": {map[string]string{
			"FLIGHTLINE_EVENTS_AGE": "2h", "FLIGHTLINE_FLEET_GRACE": "1s", "FLIGHTLINE_NATS_INBOX": "_IN",
			"FLIGHTLINE_CATALOG": "c.json", "FLIGHTLINE_STREAMS": "wait",
		}, ""},
		"the new variable decides": {map[string]string{
			"FLIGHTLINE_EVENTS_AGE": "9h", "FLIGHTLINE_EVENTS_RETENTION": "2h", "FLIGHTLINE_STREAMS": "make", "FLIGHTLINE_CREATE_STREAMS": "false",
		}, "--worker-shutdown-timeout 1s --nats-inbox-prefix _IN --price-catalog c.json"},
		"a flag decides over an old variable": {map[string]string{
			"FLIGHTLINE_STREAMS": "make", "FLIGHTLINE_CATALOG": "other.json",
		}, "--events-retention 2h --worker-shutdown-timeout 1s --nats-inbox-prefix _IN --price-catalog c.json --create-streams false"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parsed(test.env, strings.Fields(test.args)...)
			if err != nil {
				t.Fatal(err)
			}
			waits, err := c.waits()
			if g := (got{c.EventsAge, c.FleetGrace, c.NATSInbox, c.Catalog, waits}); err != nil || g != want {
				t.Errorf("got %+v, %v, want %+v", g, err, want)
			}
		})
	}
}

// parsed is the configuration of serve from this environment and flags.
func parsed(env map[string]string, args ...string) (ServeConfig, error) {
	cfg := new(ServeConfig)
	c := &cobra.Command{Use: "serve", SilenceErrors: true, SilenceUsage: true}
	configure(c, env, cfg, func(*cobra.Command, []string) error { return nil })
	c.SetArgs(append([]string{}, args...)) // nil would mean those of the test
	err := c.Execute()
	return *cfg, err
}

func TestAWrongVariableIsTheUsersErrorWhenTheCommandRuns(t *testing.T) {
	_, err := parsed(map[string]string{"FLIGHTLINE_REPLICAS": "three"})
	if _, usage := errors.AsType[*cli.UsageError](err); !usage {
		t.Errorf("got %v, want a UsageError", err)
	}
}

func TestHelpShowsNoSecret(t *testing.T) {
	env := map[string]string{"FLIGHTLINE_API_KEY": "secret", "FLIGHTLINE_BOOTSTRAP_KEY": "secret", "FLIGHTLINE_NATS_PASSWORD": "secret"}
	for _, c := range []*cobra.Command{Command(env, "", "flightline"), ServeCommand(env, ""), WorkerCommand(env, "")} {
		var help bytes.Buffer
		c.SetOut(&help)
		c.SetArgs([]string{"--help"})
		if err := c.Execute(); err != nil || strings.Contains(help.String(), `"secret"`) {
			t.Errorf("%s: got %v and\n%s", c.Name(), err, help.String())
		}
		if !strings.Contains(help.String(), "FLIGHTLINE_LOG_LEVEL") {
			t.Errorf("%s: help names no variables:\n%s", c.Name(), help.String())
		}
	}
}

func TestRolesOf(t *testing.T) {
	tests := map[string]struct{ names, want []string }{
		"one":        {[]string{"api"}, []string{"api"}},
		"twice":      {[]string{"api", "api"}, []string{"api"}},
		"all of all": {[]string{"api", "all"}, []string{"api", "control", "gateway", "recorder", "webhook", "autoscaler", "console"}},
		"unknown":    {[]string{"api", "x"}, nil},
	}
	for name, test := range tests {
		if got, err := rolesOf(test.names); !slices.Equal(got, test.want) || (err != nil) != (test.want == nil) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, test.want)
		}
	}
}

func TestOnlyTheDefaultAddressOfNATSIsSwappedWhenTaken(t *testing.T) {
	for asked, want := range map[string]string{"off": "", "127.0.0.1:7": "127.0.0.1:7"} {
		if got, why, err := natsAddress(t.Context(), asked, ""); got != want || why != "" || err != nil {
			t.Errorf("%q: got %q, %q, %v, want %q", asked, got, why, err, want)
		}
	}
	var listening net.ListenConfig
	if taken, err := listening.Listen(t.Context(), "tcp", natsDefault); err == nil {
		defer taken.Close()
	} // else somebody else has it, which will do
	if got, why, err := natsAddress(t.Context(), "", ""); got != natsAnyPort || why == "" || err != nil {
		t.Errorf("got %q, %q, %v, want a free port", got, why, err)
	}
}

// Workers that ran before look at the port of the last start.
func TestNATSListensWhereItDidAtTheLastStart(t *testing.T) {
	last, err := port.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	if got, why, err := natsAddress(t.Context(), "", "nats://"+last[0]); got != last[0] || why == "" || err != nil {
		t.Errorf("got %q, %q, %v, want %q", got, why, err, last[0])
	}
	var listening net.ListenConfig
	taken, err := listening.Listen(t.Context(), "tcp", last[0])
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if got, _, err := natsAddress(t.Context(), "", "nats://"+last[0]); got == last[0] || err != nil {
		t.Errorf("got %q, %v, want another one: it is taken", got, err)
	}
}

func TestNearby(t *testing.T) {
	for address, want := range map[string]string{
		"http://0.0.0.0:80": "http://127.0.0.1:80", "nats://[::]:42": "nats://127.0.0.1:42", "http://10.0.0.1:80": "http://10.0.0.1:80", "": "",
	} {
		if got := localURL(address); got != want {
			t.Errorf("%q: got %q, want %q", address, got, want)
		}
	}
}

func TestACommandGetsNoneOfOurSecrets(t *testing.T) {
	environment := evaluated(t)
	for _, name := range []string{
		"FLIGHTLINE_API_KEY_FILE", "FLIGHTLINE_NATS_PASSWORD_FILE", "FLIGHTLINE_NATS_KEY", "FLIGHTLINE_CLIENT_KEY", "FLIGHTLINE_DATA", "NATS_CREDS",
		"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_CLIENT_KEY", "RUNPOD_AI_API_KEY",
	} {
		environment[name] = "secret"
	}
	given := map[string]string{
		"A": "b", "PATH": "/bin", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "RUNPOD_POD_ID": "p",
		"FLIGHTLINE_FLEET": "m.1", "FLIGHTLINE_POD": "p", // by which the driver process finds what left its session
		"FLIGHTLINE_GPU_UUIDS": "GPU-1", "FLIGHTLINE_GPU_SHARE": "0.5", "FLIGHTLINE_GPU_MEMORY_MB": "12288",
	}
	maps.Copy(environment, given)
	var want []string
	for name, value := range given {
		want = append(want, name+"="+value)
	}
	slices.Sort(want)
	if got := childEnvironment(environment); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// evaluated is what `eval "$(flightline env)"` sets, all of it.
func evaluated(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	running := cli.Running{PID: os.Getpid()}
	for field, value := range reflect.ValueOf(&running).Elem().Fields() {
		if field.Type.Kind() == reflect.String {
			value.SetString("secret")
		}
	}
	running.URL = "http://127.0.0.1:1"
	if err := running.Announce(dir); err != nil {
		t.Fatal(err)
	}
	var out, told bytes.Buffer
	if code := cli.Run(t.Context(), cli.Config{Env: map[string]string{}, In: &out, Out: &out, Err: &told}, []string{"env", "--data", dir}); code != 0 {
		t.Fatalf("flightline env: got %d %s", code, told.String())
	}
	environment := map[string]string{}
	for line := range strings.Lines(out.String()) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		environment[name] = value
	}
	if len(environment) != 10 {
		t.Fatalf("got %v, want all ten variables", environment)
	}
	return environment
}

func TestAWorkerFindsNATSByItsAddressOrByADevThatRuns(t *testing.T) {
	dir := t.TempDir()
	given := NATS{NATSURL: "nats://h", NATSCreds: "c"}
	if got, err := given.find(dir); got != given || err != nil {
		t.Errorf("got %+v, %v, want what was given", got, err)
	}
	for name, running := range map[string]cli.Running{"none": {}, "off": {URL: "http://h"}} {
		if err := running.Announce(dir); err != nil {
			t.Fatal(err)
		}
		_, err := NATS{}.find(dir)
		if coded, ok := errors.AsType[*cli.CodedError](err); !ok || coded.Code != cli.ExitUnreachable {
			t.Errorf("%s: got %v, want it unreachable", name, err)
		}
	}
	if err := (cli.Running{URL: "http://h", NATSURL: "nats://d", NATSUser: "u", NATSPassword: "p"}).Announce(dir); err != nil {
		t.Fatal(err)
	}
	want := NATS{NATSURL: "nats://d", NATSUser: "u", NATSPassword: "p"}
	if got, err := (NATS{}).find(dir); got != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestWhatNATSRefusesIsNotTriedAgain(t *testing.T) {
	for err, want := range map[error]bool{
		nats.ErrNoServers: true, context.DeadlineExceeded: true,
		nats.ErrAuthorization: false, nats.ErrJetStreamNotEnabled: false,
	} {
		if got := mayHeal(err); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
}

// No variable of the page of settings is warned of.
func TestEachVariableOfTheSettingsIsKnown(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	known := Variables()
	for _, name := range regexp.MustCompile("\\| `(FLIGHTLINE_[A-Z_]+)`").FindAllStringSubmatch(string(page), -1) {
		if !slices.Contains(known, name[1]) {
			t.Errorf("%s is unknown", name[1])
		}
	}
	if !slices.Contains(known, "FLIGHTLINE_FLEET_GRACE") {
		t.Error("the old name of FLIGHTLINE_WORKER_SHUTDOWN_TIMEOUT is unknown")
	}
}
