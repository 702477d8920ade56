package dev

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"flightline/services/cli"
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
	for _, c := range []*cobra.Command{Command(env, ""), ServeCommand(env, ""), WorkerCommand(env, "")} {
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
		"all of all": {[]string{"api", "all"}, []string{"api", "control", "gateway", "recorder", "webhook", "autoscaler"}},
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
		if got, swapped, err := natsAddress(t.Context(), asked); got != want || swapped || err != nil {
			t.Errorf("%q: got %q, %v, want %q", asked, got, err, want)
		}
	}
	var listening net.ListenConfig
	if taken, err := listening.Listen(t.Context(), "tcp", natsDefault); err == nil {
		defer taken.Close()
	} // else somebody else has it, which will do
	if got, swapped, err := natsAddress(t.Context(), ""); got != natsAnyPort || !swapped || err != nil {
		t.Errorf("got %q, %v, %v, want a free port", got, swapped, err)
	}
}

func TestNearby(t *testing.T) {
	for address, want := range map[string]string{
		"http://0.0.0.0:80": "http://127.0.0.1:80", "nats://[::]:42": "nats://127.0.0.1:42", "http://10.0.0.1:80": "http://10.0.0.1:80", "": "",
	} {
		if got := nearby(address); got != want {
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
	if len(environment) != 9 {
		t.Fatalf("got %v, want all nine variables", environment)
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
		if got := away(err); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
}
