package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flightline/services/cli"
)

// api answers each "METHOD path" with its entry, anything else with 500.
type api map[string]struct {
	status int
	body   string
}

func (a api) start(t *testing.T, seen *http.Request) string {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen != nil {
			*seen = *r.Clone(r.Context())
		}
		entry, ok := a[r.Method+" "+r.URL.RequestURI()]
		if !ok {
			entry.status, entry.body = 500, `{"error":"not in the script: `+r.Method+" "+r.URL.RequestURI()+`"}`
		}
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		w.WriteHeader(entry.status)
		_, _ = w.Write([]byte(entry.body))
	}))
	t.Cleanup(web.Close)
	return web.URL
}

type result struct {
	code     int
	out, err string
}

// run runs a command line in an empty folder, without patience unless env says so.
func run(t *testing.T, env map[string]string, in string, args ...string) result {
	t.Helper()
	return runAs(t, "", env, in, args...)
}

// runAs is run of a program that was started by this name.
func runAs(t *testing.T, program string, env map[string]string, in string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	all := map[string]string{"FLIGHTLINE_RETRY_TIMEOUT": "0s"}
	maps.Copy(all, env)
	code := cli.Run(t.Context(), cli.Config{
		Env: all, In: strings.NewReader(in), Out: &out, Err: &errs, Version: "v1.2.3", Program: program,
	}, args)
	return result{code, out.String(), errs.String()}
}

func TestExitCodesAreAsPromised(t *testing.T) {
	t.Chdir(t.TempDir())
	server := api{
		"POST /v2/ep/run":                  {200, `{"id":"j1","status":"IN_QUEUE"}`},
		"POST /v2/none/run":                {404, `{"error":"no such endpoint","code":"endpoint_not_found"}`},
		"POST /v2/ep/runsync?wait=90000":   {200, `{"id":"s1","status":"COMPLETED","output":1}`},
		"POST /v2/bad/runsync?wait=90000":  {200, `{"id":"s1","status":"FAILED","error":"boom"}`},
		"POST /v2/slow/runsync?wait=90000": {200, `{"id":"s1","status":"IN_QUEUE"}`},
		"GET /v2/ep/status/gone":           {404, `{"error":"no such job","code":"job_not_found"}`},
		"GET /v2/ep/status/j1":             {200, `{"id":"j1","status":"CANCELLED"}`},
		"GET /v2/ep/status-sync/j1":        {200, `{"id":"j1","status":"CANCELLED"}`},
		"POST /v2/ep/cancel/j1":            {400, `{"error":"finished already","code":"job_finished"}`},
	}.start(t, nil)
	tests := map[string]struct {
		args []string
		want int
		says string // in the errors
	}{
		"accepted":             {[]string{"run", "ep", "{}", "--url", server}, 0, ""},
		"completed":            {[]string{"runsync", "ep", "{}", "--url", server}, 0, ""},
		"help":                 {[]string{"--help"}, 0, ""},
		"help on exit codes":   {[]string{"help", "exit-codes"}, 0, ""},
		"version":              {[]string{"version"}, 0, ""},
		"job failed":           {[]string{"runsync", "bad", "{}", "--url", server}, 1, ""},
		"job not finished":     {[]string{"runsync", "slow", "{}", "--url", server}, 1, "flightline status slow s1"},
		"waiting failed":       {[]string{"run", "ep", "{}", "--wait", "--url", server}, 1, "flightline: wait for job j1: not in the script: GET /v2/ep/status-sync/j1?wait=50000 (HTTP 500)"},
		"refused":              {[]string{"cancel", "ep", "j1", "--url", server}, 1, "finished already"},
		"no such command":      {[]string{"fly"}, 2, "unknown command"},
		"no such flag":         {[]string{"run", "--fast"}, 2, "unknown flag"},
		"no such verb":         {[]string{"endpoint", "fly"}, 2, "fly"},
		"a noun alone":         {[]string{"key"}, 2, "key: a subcommand is missing: create, list"},
		"too few arguments":    {[]string{"run", "ep"}, 2, "'flightline run --help'"},
		"input is no JSON":     {[]string{"run", "ep", "hello", "--url", server}, 2, "JSON object"},
		"input is no object":   {[]string{"run", "ep", "[1]", "--url", server}, 2, "JSON object"},
		"input is null":        {[]string{"run", "ep", "null", "--url", server}, 2, "JSON object"},
		"request is wrong":     {[]string{"run", "ep", `{"input":3}`, "--url", server}, 2, "input is required"},
		"no such file":         {[]string{"run", "ep", "@none", "--url", server}, 2, "none"},
		"no such format":       {[]string{"run", "ep", "{}", "-o", "xml", "--url", server}, 2, "table or json"},
		"address is wrong":     {[]string{"run", "ep", "{}", "--url", "nowhere"}, 2, "nowhere"},
		"a key without scopes": {[]string{"key", "create", "ci", "--url", server}, 2, "--scope"},
		"nobody answers":       {[]string{"run", "ep", "{}", "--url", "http://127.0.0.1:1"}, 3, "could not reach"},
		"nobody of them":       {[]string{"run", "ep", "{}", "--url", "http://127.0.0.1:1,http://127.0.0.1:2", "--retry-timeout", "100ms"}, 3, "could not reach"},
		"one of them is there": {[]string{"run", "ep", "{}", "--url", "http://127.0.0.1:1," + server, "--patience", "20s"}, 0, ""},
		"patience is wrong":    {[]string{"run", "ep", "{}", "--url", server, "--retry-timeout", "long"}, 2, "long"},
		"no server known":      {[]string{"run", "ep", "{}"}, 3, "flightline dev"},
		"no such job":          {[]string{"status", "ep", "gone", "--url", server}, 4, "no such job"},
		"no such endpoint":     {[]string{"run", "none", "{}", "--url", server}, 4, "no such endpoint"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := run(t, nil, "", test.args...)
			if got.code != test.want || !strings.Contains(got.err, test.says) {
				t.Errorf("got %d, %q, want %d with %q", got.code, got.err, test.want, test.says)
			}
			if test.want == 0 && got.err != "" || test.want != 0 && test.want != 1 && got.out != "" {
				t.Errorf("got output %q and errors %q: answers and errors do not mix", got.out, got.err)
			}
		})
	}
}

func TestTheServerIsFoundByFlagThenEnvironmentThenDev(t *testing.T) {
	t.Chdir(t.TempDir())
	script := api{"GET /v2/ep/health": {200, `{}`}}
	var flagged, named, dev http.Request
	flag, env, local := script.start(t, &flagged), script.start(t, &named), script.start(t, &dev)
	announce(t, cli.DefaultData, cli.Running{URL: local, APIKey: "dev-key"})

	tests := map[string]struct {
		env  map[string]string
		args []string
		at   *http.Request
		key  string
	}{
		"a running dev and its key": {nil, nil, &dev, "Bearer dev-key"},
		"a dev with another key":    {nil, []string{"--api-key", "k"}, &dev, "Bearer k"},
		"the environment":           {map[string]string{"FLIGHTLINE_URL": env, "FLIGHTLINE_API_KEY": "k2"}, nil, &named, "Bearer k2"},
		"dev's key stays at home":   {map[string]string{"FLIGHTLINE_URL": env}, nil, &named, ""},
		"dev by its address":        {map[string]string{"FLIGHTLINE_URL": local}, nil, &dev, "Bearer dev-key"},
		"and a slash":               {map[string]string{"FLIGHTLINE_URL": local + "/"}, nil, &dev, "Bearer dev-key"},
		"the flag":                  {map[string]string{"FLIGHTLINE_URL": env}, []string{"--url", flag}, &flagged, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			*test.at = http.Request{}
			got := run(t, test.env, "", append([]string{"health", "ep"}, test.args...)...)
			if got.code != 0 || test.at.Method != http.MethodGet {
				t.Fatalf("got %+v, and the server saw %q", got, test.at.Method)
			}
			if key := test.at.Header.Get("Authorization"); key != test.key {
				t.Errorf("got key %q, want %q", key, test.key)
			}
		})
	}
}

// Ctrl-C ends the wait and not the job.
func TestAnInterruptedRunSyncSaysThatTheJobGoesOn(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { interrupt() }))
	t.Cleanup(server.Close)
	var errs bytes.Buffer
	code := cli.Run(ctx, cli.Config{Program: "flightline", In: strings.NewReader(""), Out: io.Discard, Err: &errs}, []string{"runsync", "ep", "{}", "--url", server.URL})
	if want := "flightline: no longer waiting; a job that was submitted goes on: flightline requests ep\n"; code != 1 || errs.String() != want {
		t.Errorf("got %d, %q, want 1 and %q", code, errs.String(), want)
	}
}

// A 401 has the same text for all; who gave no key at all has to learn so, above all who
// gave a running dev another name than its own, as localhost.
func TestARefusalSaysThatNoKeyWasGiven(t *testing.T) {
	t.Chdir(t.TempDir())
	url := api{"GET /v2/ep/health": {401, `{"error":"unauthorized","code":"unauthorized"}`}}.start(t, nil)
	none := "; no key was given: set FLIGHTLINE_API_KEY or give --api-key-file"
	health := func(env map[string]string) string {
		text := run(t, env, "", "health", "ep", "--url", url).err
		_, text, _ = strings.Cut(text, "unauthorized)")
		return strings.TrimSpace(text)
	}
	if got := health(nil); got != none {
		t.Errorf("without a key: got %q, want %q", got, none)
	}
	if got := health(map[string]string{"FLIGHTLINE_API_KEY": "k"}); got != "" {
		t.Errorf("with one: got %q, want nothing of it", got)
	}
	announce(t, cli.DefaultData, cli.Running{URL: "http://127.0.0.1:1", APIKey: "dev-key"})
	if got, want := health(nil), none+"; that of the dev in .flightline goes to http://127.0.0.1:1 only"; got != want {
		t.Errorf("beside a dev: got %q, want %q", got, want)
	}
}

func announce(t *testing.T, data string, r cli.Running) {
	t.Helper()
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.Announce(data); err != nil {
		t.Fatal(err)
	}
}

func TestDevAnnouncesItselfToThisUserOnly(t *testing.T) {
	dir := t.TempDir()
	if _, err := cli.FindRunning(dir); err == nil {
		t.Error("got a dev where there is none")
	}
	want := cli.Running{URL: "http://h", APIKey: "k", NATSURL: "nats://h", NATSUser: "u", NATSPassword: "p", PID: 7}
	announce(t, dir, want)
	if got, err := cli.FindRunning(dir); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	info, err := os.Stat(filepath.Join(dir, "dev.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v, want 0600: it holds keys", info.Mode(), err)
	}
	announce(t, dir, cli.Running{APIKey: "k"})
	if _, err := cli.FindRunning(dir); !errors.Is(err, cli.ErrNotRunning) {
		t.Errorf("got %v from a dev that was stopped, want ErrNotRunning", err)
	}
	if got, err := cli.ReadRunning(dir); err != nil || got.APIKey != "k" {
		t.Errorf("got %+v, %v: its secrets are kept", got, err)
	}
}

func TestADamagedFileOfDevSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(cli.RunningPath(dir), []byte(`{"url":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := cli.ReadRunning(dir); err == nil || !strings.Contains(err.Error(), "dev.json is damaged") || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("got %v, want what to do", err)
	}
}

func TestTheShellLearnsOfARunningDev(t *testing.T) {
	t.Chdir(t.TempDir())
	if got := run(t, nil, "", "env"); got.code != 3 {
		t.Errorf("got %+v without a dev, want code 3", got)
	}
	announce(t, cli.DefaultData, cli.Running{URL: "http://h", APIKey: "it's", MetricsURL: "http://m/metrics"})
	want := "export FLIGHTLINE_URL='http://h'\nexport FLIGHTLINE_API_KEY='it'\\''s'\nexport FLIGHTLINE_METRICS_URL='http://m/metrics'\n"
	if got := run(t, nil, "", "env"); got.code != 0 || got.out != want {
		t.Errorf("got %+v, want %q", got, want)
	}
}

func TestSecretsMayComeFromFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("\ufefffrom the file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env, err := cli.Environment([]string{
		"FLIGHTLINE_API_KEY_FILE=" + path, "FLIGHTLINE_URL=plain", "FLIGHTLINE_URL_FILE=/none", "OTHER_FILE=/none", "EQ=a=b",
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"FLIGHTLINE_API_KEY": "from the file", "FLIGHTLINE_URL": "plain", "OTHER": "", "EQ": "a=b"} {
		if env[name] != want {
			t.Errorf("%s: got %q, want %q", name, env[name], want)
		}
	}
	if _, err := cli.Environment([]string{"FLIGHTLINE_API_KEY_FILE=/none"}); err == nil {
		t.Error("got no error for a secret that cannot be read")
	}
}

// A secret comes from a file or from standard input, and is no part of the command
// line, which all users of the machine see.
func TestASecretIsReadFromAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	path := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var seen http.Request
	server := api{"GET /v2/ep/health": {200, `{}`}}.start(t, &seen)
	ask := func(in string, args ...string) result {
		seen = http.Request{}
		return run(t, map[string]string{"FLIGHTLINE_URL": server, "FLIGHTLINE_API_KEY": "of-the-environment"}, in, append([]string{"health", "ep"}, args...)...)
	}
	write("\ufeffof-a-file\r\n") // as an editor of Windows leaves it
	for name, tt := range map[string]struct {
		in, key string
		args    []string
	}{
		"a file":         {"", "Bearer of-a-file", []string{"--api-key-file", path}},
		"standard input": {"of-stdin\r\n", "Bearer of-stdin", []string{"--api-key-file", "-"}},
		"neither":        {"", "Bearer of-the-environment", nil},
	} {
		if got := ask(tt.in, tt.args...); got.code != 0 || seen.Header.Get("Authorization") != tt.key || strings.Contains(got.err, "warning") {
			t.Errorf("%s: got %+v and the key %q, want %q", name, got, seen.Header.Get("Authorization"), tt.key)
		}
	}
	if got := ask("", "--api-key", "typed-key"); got.code != 0 || !strings.Contains(got.err, "warning: --api-key can be seen by other users") || strings.Contains(got.err, "typed-key") {
		t.Errorf("typed: got %+v, want a warning without the key", got)
	}
	for text, want := range map[string]string{"": "one line", "two\nlines\n": "one line", "a\x00b": "one line", strings.Repeat("x", 65<<10): "one line"} {
		write(text)
		if got := ask("", "--api-key-file", path); got.code != 2 || !strings.Contains(got.err, want) || seen.Method != "" {
			t.Errorf("%.20q: got %+v, want a usage error", text, got)
		}
	}
	if got := ask("", "--api-key-file", path, "--api-key", "k"); got.code != 2 || !strings.Contains(got.err, "only one of them") {
		t.Errorf("both: got %+v", got)
	}
	if got := ask("", "--api-key-file", filepath.Join(t.TempDir(), "none")); got.code != 2 || !strings.Contains(got.err, "--api-key-file: open") {
		t.Errorf("no such file: got %+v", got)
	}
}
