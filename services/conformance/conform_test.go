package conformance

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/pod"
)

func TestScenariosAreWellFormed(t *testing.T) {
	seen, name := map[string]bool{}, regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	everything := Config{
		BaseURL: "http://127.0.0.1", Make: true, Rates: true, Retention: true,
	}
	for _, s := range Scenarios() {
		if !name.MatchString(s.Name) || seen[s.Name] || s.Section == "" || s.Shows == "" || s.play == nil {
			t.Errorf("%+v: want a name of its own, a section and what it shows", s)
		}
		seen[s.Name] = true
		if why := everything.missing(s.Needs); why != "" {
			t.Errorf("%s: got %q, want all its needs met by a configuration that has everything", s.Name, why)
		}
		for _, need := range s.Needs {
			if why := (Config{BaseURL: "http://elsewhere.example"}).missing([]string{need}); !strings.Contains(why, "--") {
				t.Errorf("%s: got %q, want the flag that meets %s", s.Name, why, need)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	env := environmentOf(pod.Worker{BaseURL: "http://h", Endpoint: "ep", ID: "w", Token: "token"})
	for name, tc := range map[string]struct {
		cfg  Config
		want string // part of the error; "" for none
	}{
		"enough":                 {Config{BaseURL: "http://h", Key: "k", Endpoint: "echo"}, ""},
		"a worker":               {Config{BaseURL: "http://h", Key: "k", WorkerEnv: env}, ""},
		"its own endpoint":       {Config{BaseURL: "https://h/v2", Key: "k", Make: true}, ""},
		"no key":                 {Config{BaseURL: "http://h", Endpoint: "echo"}, "--api-key"},
		"no address":             {Config{Key: "k", Endpoint: "echo"}, "--url"},
		"no endpoint":            {Config{BaseURL: "http://h", Key: "k"}, "--endpoint"},
		"two workers":            {Config{BaseURL: "http://h", Key: "k", WorkerEnv: env, Make: true}, "only one"},
		"half a worker":          {Config{BaseURL: "http://h", Key: "k", WorkerEnv: map[string]string{envTake: "x"}}, envDone},
		"an address without one": {Config{BaseURL: "h:8080", Key: "k", Make: true}, "--url"},
		"another scheme":         {Config{BaseURL: "http://h", RestURL: "ftp://h", Key: "k", Make: true}, "--rest-url"},
		"a pattern that is none": {Config{BaseURL: "http://h", Key: "k", Make: true, Only: []string{"[a"}}, "[a"},
		"a name of none":         {Config{BaseURL: "http://h", Key: "k", Make: true, Only: []string{"run", "runsnc"}}, `"runsnc": no scenario`},
		"no such name to skip":   {Config{BaseURL: "http://h", Key: "k", Make: true, Skip: []string{"purg"}}, `"purg": no scenario`},
		"nothing is left":        {Config{BaseURL: "http://h", Key: "k", Make: true, Only: []string{"run"}, Skip: []string{"run*"}}, "leave no scenario"},
	} {
		err := tc.cfg.Check()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q in it", name, err, tc.want)
		}
	}
}

func TestChoose(t *testing.T) {
	for name, tc := range map[string]struct {
		only, skip []string
		want       string
	}{
		"by name":     {only: []string{"run", "health"}, want: "run health"},
		"by pattern":  {only: []string{"runsync*"}, want: "runsync runsync-wait runsync-wait-bounds runsync-size"},
		"without one": {only: []string{"key-*"}, skip: []string{"key-w*"}, want: "key-forms key-missing"},
		"none":        {only: []string{"nothing"}},
	} {
		var got []string
		for _, s := range (Config{Only: tc.only, Skip: tc.skip}).choose(Scenarios()) {
			got = append(got, s.Name)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got %v, want %s", name, got, tc.want)
		}
	}
}

// A server that answers everything alike passes nothing but what it does
// right; what cannot be played is skipped and no pass.
func TestAServerThatAnswersAllAlike(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		passes []string
	}{
		"an empty object":       {200, `{}`, []string{"key-forms", "unknown-fields"}},
		"an array":              {200, `[]`, []string{"key-forms", "unknown-fields"}},
		"no JSON":               {200, `hello`, []string{"key-forms", "unknown-fields"}},
		"all is denied":         {401, `{"error":"no"}`, []string{"key-missing", "key-wrong"}},
		"nothing is there":      {404, `{"error":"no"}`, []string{"unknown-endpoint", "unknown-job"}},
		"all requests are bad":  {400, `{"error":"no"}`, []string{"fields-typed", "input-required", "malformed-json"}},
		"a failure of its own":  {500, `{"error":"no"}`, nil},
		"a completed job, ever": {200, `{"id":"sync-1","status":"COMPLETED","delayTime":1,"executionTime":1}`, []string{"key-forms", "low-priority", "s3config-hidden", "unknown-fields"}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
			_, _ = new(bytes.Buffer).ReadFrom(in.Body)
			out.Header().Set("Content-Type", "application/json")
			out.WriteHeader(tc.status)
			_, _ = out.Write([]byte(tc.body))
		}))
		cfg := Config{BaseURL: server.URL, Key: "k", Endpoint: "echo", Together: 8, Skip: []string{"webhook*", "kept", "ttl-*", "status-ttl", "client-*", "*-size"}}
		report, err := Run(t.Context(), cfg)
		server.Close()
		if err != nil || report.Err() == nil {
			t.Errorf("%s: got %v and the verdict %v, want a report that says it does not conform", name, err, report.Err())
		}
		var passes []string
		for _, r := range report.Scenarios {
			if r.Outcome == Pass {
				passes = append(passes, r.Name)
			}
			if r.Outcome != Pass && r.Detail == "" {
				t.Errorf("%s: %s: got %s without a reason", name, r.Name, r.Outcome)
			}
		}
		if slices.Sort(passes); !slices.Equal(passes, tc.passes) {
			t.Errorf("%s: got %v passed, want %v", name, passes, tc.passes)
		}
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	for _, cfg := range []Config{{Endpoint: "echo"}, {Make: true}} {
		cfg.BaseURL, cfg.Key = server.URL, "k"
		if _, err := Run(t.Context(), cfg); !errors.Is(err, ErrUnreachable) {
			t.Errorf("got %v, want ErrUnreachable", err)
		}
	}
}

// The error about an endpoint that cannot be made is what the server said.
func TestAnEndpointThatCannotBeMadeIsExplained(t *testing.T) {
	for name, tc := range map[string]struct {
		workers, health int
		want            string
	}{
		"no worker": {http.StatusForbidden, http.StatusOK, `--make: let a worker in: 403 {"id":"w","error":"no"}`},
		"no health": {http.StatusOK, http.StatusBadGateway, `--make: the new endpoint is not served: 502 {"id":"w","error":"no"}`},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
			text := `{"id":"w","error":"no"}`
			switch {
			case strings.HasSuffix(in.URL.Path, "/workers") && tc.workers == http.StatusOK:
				text = `{"id":"w","token":"t"}`
			case strings.HasSuffix(in.URL.Path, "/workers"):
				out.WriteHeader(tc.workers)
			case strings.HasSuffix(in.URL.Path, "/health"):
				if asked++; asked > 1 {
					cancel()
				}
				out.WriteHeader(tc.health)
			}
			_, _ = out.Write([]byte(text))
		}))
		w, err := newWorld(ctx, Config{BaseURL: server.URL, Key: "k", Make: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.makeEndpoint(ctx); err == nil || err.Error() != tc.want {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
		w.close()
		cancel()
		server.Close()
	}
}

// What was not played to its end did not fail.
func TestTheEndOfTheContextEndsTheRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if !strings.HasSuffix(in.URL.Path, "/health") { // else it is asked whether it is there
			cancel()
		}
		_, _ = out.Write([]byte(`{}`))
	}))
	defer server.Close()
	report, err := Run(ctx, Config{BaseURL: server.URL, Key: "k", Endpoint: "echo", Only: []string{"run", "unknown-*", "key-wrong"}})
	if !errors.Is(err, context.Canceled) || report.Failed+report.Passed != 0 || report.Skipped != 5 {
		t.Fatalf("got %v and %+v, want nothing passed or failed", err, report)
	}
	for _, r := range report.Scenarios {
		if r.Detail != "interrupted" {
			t.Errorf("%s: got %q, want that it was interrupted", r.Name, r.Detail)
		}
	}
}

func TestReadEnv(t *testing.T) {
	got := readEnv("# a comment\nA=1\r\nB=x=y\n\nno variable\nC=")
	if diff := cmp.Diff(map[string]string{"A": "1", "B": "x=y", "C": ""}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheReport(t *testing.T) {
	r := Report{BaseURL: "http://h", Passed: 1, Failed: 1, Skipped: 1, Scenarios: []Result{
		{Name: "run", Section: "Endpoints", Outcome: Pass, TookMs: 120},
		{Name: "status", Section: "Job record", Outcome: Fail, Detail: printable("got\x1b[31m\n\u009b no\xff"), TookMs: 2000},
		{Name: "stream", Section: "Stream chunk", Outcome: Skip, Detail: "needs --make"},
	}}
	for format, want := range map[string]string{
		"table": "SCENARIO  SECTION       RESULT  TOOK  DETAIL\n" +
			"run       Endpoints     pass    0.1s\n" +
			"status    Job record    fail    2.0s  got [31m   no\n" +
			"stream    Stream chunk  skip          needs --make\n" +
			"\n1 passed, 1 failed, 1 skipped: http://h\n",
		"json": `{"baseUrl":"http://h","passed":1,"failed":1,"skipped":1,"scenarios":[` +
			`{"name":"run","section":"Endpoints","outcome":"pass","tookMs":120},` +
			`{"name":"status","section":"Job record","outcome":"fail","detail":"got [31m   no","tookMs":2000},` +
			`{"name":"stream","section":"Stream chunk","outcome":"skip","detail":"needs --make","tookMs":0}]}` + "\n",
	} {
		var out bytes.Buffer
		if err := r.write(&out, format); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", format, diff)
		}
	}
	if err := (Report{Skipped: 3}).Err(); !errors.Is(err, ErrFailed) {
		t.Errorf("nothing played: got %v, want ErrFailed", err)
	}
}

func TestTheCommandIsCheckedBeforeAnythingIsTried(t *testing.T) {
	file := filepath.Join(t.TempDir(), "w.env")
	if err := os.WriteFile(file, []byte("A=1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"required":         {},
		"unknown command":  {"extra"},
		"table or json":    {"--api-key", "k", "-o", "xml"},
		"no " + envTake:    {"--key", "k", "--worker-env", file},
		"no such file":     {"--key", "k", "--worker-env", file + "x"},
		"http or https":    {"--key", "k", "--url", "h"},
		`--url "old"`:      {"--key", "k", "--base-url", "old"},
		"syntax error":     {"--key", "k", "--only", "[a"},
		"only one of them": {"--key", "k", "--make", "--worker-env", file},
	} {
		c := Command(map[string]string{"FLIGHTLINE_URL": "http://127.0.0.1:1"})
		if err := c.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		if err := c.ValidateArgs(c.Flags().Args()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q in it", args, err, want)
		}
	}
}
