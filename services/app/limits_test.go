package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/services/cli"
	"flightline/shared/ratelimit"
)

func TestLimitsOf(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	changed := ratelimit.Defaults()
	changed[ratelimit.Run] = ratelimit.Bounds{Requests: 5000, Concurrent: 1000}
	changed[ratelimit.Status] = ratelimit.Bounds{}
	const text = `{"run":{"requests":5000,"concurrent":1000},"status":null}` + "\n"
	tests := map[string]struct {
		setting string
		want    ratelimit.Table
		err     string // what it ends with
	}{
		"default":      {"default", ratelimit.Defaults(), ""},
		"off":          {"off", nil, ""},
		"a file":       {file("good.json", text), changed, ""},
		"JSON":         {text, changed, ""},
		"no file":      {filepath.Join(dir, "none"), nil, "no such file or directory"},
		"nothing":      {"", nil, "no such file or directory"},
		"a bad file":   {file("bad.json", `{"walk":null}`), nil, "cancel, explain, openai, purge-queue, requests, retry, run, runsync, scale, stats, status, stream"},
		"bad JSON":     {`{"run":{"rate":1}}`, nil, "--limits: run.rate is unknown: must be requests or concurrent"},
		"an empty one": {file("empty.json", ""), nil, "empty.json: must be a JSON object of operations"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := limitsOf(test.setting)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if test.err == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if _, usage := errors.AsType[*cli.UsageError](err); !usage || !strings.HasSuffix(err.Error(), test.err) {
				t.Errorf("got %v, want a UsageError that ends with %q", err, test.err)
			}
		})
	}
}

func TestLimitsComeFromFlagVariableOrDefault(t *testing.T) {
	for want, given := range map[string]struct {
		env  map[string]string
		args []string
	}{
		"default":  {},
		"off":      {env: map[string]string{"FLIGHTLINE_LIMITS": "off"}},
		"lim.json": {env: map[string]string{"FLIGHTLINE_LIMITS": "off"}, args: []string{"--limits", "lim.json"}},
	} {
		if cfg, err := parsed(given.env, given.args...); err != nil || cfg.Limits != want {
			t.Errorf("got %q, %v, want %q", cfg.Limits, err, want)
		}
	}
}

func TestLargeBodiesTakeASixteenthOfTheMemory(t *testing.T) {
	t.Parallel()
	for all, want := range map[int64]int{
		0:         0,
		512 << 20: 32 << 20,
		8 << 30:   512 << 20,
		64 << 30:  512 << 20,
	} {
		if got := bodyMemory(all); got != want {
			t.Errorf("of %d bytes: got %d, want %d", all, got, want)
		}
	}
}
