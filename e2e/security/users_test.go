package security

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"flightline/services/conformance"
	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/streams"
)

// guarded is a NATS with a user for each role, as `flightline nats-config`
// makes it.
type guarded struct {
	*program.Env
	setup, url string
	// log is what the NATS server says.
	log *testenv.Log
}

var violation = regexp.MustCompile(`(Publish|Subscription) Violation.*`)

// violations are what users tried and may not.
func (g *guarded) violations() []string {
	all := violation.FindAllString(g.log.String(), -1)
	slices.Sort(all)
	return slices.Compact(all)
}

func newGuarded(t *testing.T, args ...string) *guarded {
	t.Helper()
	g := &guarded{Env: program.New(t), log: new(testenv.Log)}
	g.setup = filepath.Join(g.Dir, "setup")
	g.OK(append([]string{"nats-config", "--dir", g.setup}, args...)...)
	server, err := embedded.Start(t.Context(), embedded.Config{
		File: natsConf(g.Env, g.setup, "nats.conf"), Dir: t.TempDir(), Listen: "127.0.0.1:0",
		User: string(streams.RoleAdmin), Password: g.password(streams.RoleAdmin),
		Log: slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	g.url = server.URL()
	return g
}

// natsConf is the configuration that nats-config wrote, in a file of that name, as
// several servers of one machine may have it: without the port for monitoring, and
// with the replacements, which are pairs as for strings.NewReplacer.
func natsConf(s *program.Env, setup, name string, replace ...string) (file string) {
	s.T.Helper()
	text, err := os.ReadFile(filepath.Join(setup, "nats", "nats.conf"))
	if err != nil {
		s.T.Fatal(err)
	}
	const monitor = `http: "127.0.0.1:8222"`
	if !strings.Contains(string(text), monitor) {
		s.T.Fatalf("the configuration has no line %s", monitor)
	}
	file = filepath.Join(s.Dir, name)
	if err := os.WriteFile(file, []byte(strings.NewReplacer(append(replace, monitor, "")...).Replace(string(text))), 0o600); err != nil {
		s.T.Fatal(err)
	}
	return file
}

func (g *guarded) secret(role, name string) string {
	g.T.Helper()
	text, err := os.ReadFile(filepath.Join(g.setup, role, name))
	if err != nil {
		g.T.Fatal(err)
	}
	return string(text)
}

func (g *guarded) password(r streams.Role) string { return g.secret(string(r), "password") }

// as lets the commands that come next be of this role.
func (g *guarded) as(r streams.Role) {
	g.Environ = append(g.Environ, "NATS_URL="+g.url, "FLIGHTLINE_NATS_USER="+string(r), "FLIGHTLINE_NATS_PASSWORD_FILE="+filepath.Join(g.setup, string(r), "password"),
		"FLIGHTLINE_NATS_INBOX_PREFIX="+streams.InboxPrefix(r), "FLIGHTLINE_CREATE_STREAMS=false")
}

// serve starts each role in a process of its own, and returns the address of
// one server in front of them, and the processes.
func (g *guarded) serve() (front string, all []*program.Process) {
	g.T.Helper()
	key := filepath.Join(g.setup, "control", "api-key")
	urls := map[streams.Role]*url.URL{}
	for _, r := range []streams.Role{streams.RoleControl, streams.RoleAPI, streams.RoleGateway, streams.RoleRecorder, streams.RoleWebhook, streams.RoleAutoscaler} {
		g.as(r)
		if r == streams.RoleControl {
			g.Environ = append(g.Environ, "FLIGHTLINE_CREATE_STREAMS=true", "FLIGHTLINE_BOOTSTRAP_KEY_FILE="+key)
		} else {
			g.Environ = append(g.Environ, "FLIGHTLINE_BOOTSTRAP_KEY_FILE=")
		}
		d := g.Start("serve", string(r), "--webhook-allow-http", "--webhook-allow-networks", "127.0.0.0/8")
		u, err := url.Parse(d.Line(program.Ready))
		if err != nil {
			g.T.Fatal(err)
		}
		urls[r], all = u, append(all, d)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(urls[roleOf(p.In.URL.Path)])
	}}
	server := httptest.NewServer(proxy)
	g.T.Cleanup(server.Close)
	g.T.Cleanup(func() { // before the server waits for answers
		for _, d := range all {
			d.Kill()
		}
	})
	g.Environ = append(g.Environ, "FLIGHTLINE_URL="+server.URL, "FLIGHTLINE_API_KEY="+g.secret("control", "api-key"), "FLIGHTLINE_BOOTSTRAP_KEY_FILE=")
	return server.URL, all
}

var ofAPI = regexp.MustCompile(`^/v1/(overview|failures|workers|events|jobs/[^/]+)$`)

var ofGateway = regexp.MustCompile(`^/v2/[^/]+/(job-|ping)`)

// roleOf is who answers requests for the path.
func roleOf(path string) streams.Role {
	switch {
	case ofAPI.MatchString(path):
		return streams.RoleAPI
	case strings.HasPrefix(path, "/v1/"):
		return streams.RoleControl
	case ofGateway.MatchString(path):
		return streams.RoleGateway
	}
	return streams.RoleAPI
}

// The scenarios of the contract hold with each role in a process of its own,
// with its own user, and nobody tries what it may not.
func TestEachRoleCanDoItsWorkWithItsOwnUser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	g := newGuarded(t)
	front, all := g.serve()
	const long = "kept,webhook-retries" // half a minute each
	optional := []string{"forgotten", "rate-cancel", "rate-purge"}
	var conform sync.WaitGroup
	for name, play := range map[string]func(*program.Env, string, string){
		"the long scenarios": func(s *program.Env, url, key string) { s.T.Helper(); conformed(s, url, key, 2, nil, "--only", long) },
		"the others": func(s *program.Env, url, key string) {
			s.T.Helper()
			conformed(s, url, key, len(conformance.Scenarios())-2-len(optional), optional, "--skip", long)
		},
	} {
		client := *g.Env
		conform.Go(func() {
			t.Run(name, func(t *testing.T) {
				client.T = t
				play(&client, front, g.secret("control", "api-key"))
			})
		})
	}
	defer conform.Wait()
	w := g.nativeWork()
	conform.Wait()
	for _, d := range append(all, w) {
		if d.Stop(program.StopWithin); strings.Contains(d.Said(), "ermissions violation") {
			t.Errorf("%v: %s", d.Cmd.Args, d.Said())
		}
	}
	for _, v := range g.violations() {
		t.Error(v)
	}
}

// conformed plays scenarios of the contract, and wants so many to pass and those to be
// skipped.
func conformed(s *program.Env, url, key string, passed int, skipped []string, args ...string) {
	s.T.Helper()
	code, out, errs := s.Run(append([]string{"conform", "--base-url", url, "--key", key, "--make", "-o", "json"}, args...)...)
	var report conformance.Report
	program.Decode(s.T, out, &report)
	var got []string
	for _, r := range report.Scenarios {
		if r.Outcome == conformance.Skip {
			got = append(got, r.Name)
		}
	}
	if slices.Sort(got); code != 0 || report.Passed != passed || !slices.Equal(got, skipped) {
		s.T.Errorf("got code %d, %d passed, want 0 and %d, and %v skipped\n%s%s", code, report.Passed, passed, skipped, out, errs)
	}
}

// nativeWork has a worker of the endpoint own, which speaks NATS, do what there is to do,
// and returns it; another worker is drained.
func (g *guarded) nativeWork() *program.Process {
	t := g.T
	t.Helper()
	g.OK("endpoint", "create", "own")
	g.as(streams.RoleWorker)
	w := g.Start("worker", "own", "--", "sh", "-c", `echo '{"early":1}'; cat`)
	w.Line(program.WorkerReady)
	if got := g.OK("runsync", "own", `{"a":1}`); !strings.Contains(got, "COMPLETED") {
		t.Errorf("got %q, want a completed job", got)
	}
	large := filepath.Join(g.Dir, "large.json") // parts, both as input and as output
	if err := os.WriteFile(large, []byte(`{"text":"`+strings.Repeat("x", 3<<20)+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := g.OK("runsync", "own", "@"+large); !strings.Contains(got, "COMPLETED") || len(got) < 3<<20 {
		t.Errorf("got %d bytes, want the large input back", len(got))
	}
	if id := program.Submit(g.Env, "own"); !strings.Contains(g.OK("stream", "own", id), `{"early":1}`) {
		t.Error("got no chunk of the job in its stream")
	}
	g.OK("endpoint", "create", "slow")
	slow := g.Start("worker", "slow", "--id", "slow-1", "--", "sh", "-c", `echo '{"chunk":1}'; echo '{"chunk":2}'; exec sleep 600`)
	slow.Line(program.WorkerReady)
	id := program.Submit(g.Env, "slow")
	g.Eventually("the job runs", func() bool { return strings.Contains(g.OK("status", "slow", id), "IN_PROGRESS") })
	g.OK("cancel", "slow", id)
	g.OK("worker", "drain", "slow", "slow-1")
	slow.Ends(program.Soon)
	return w
}

// What a role has no business with is refused by the server.
func TestEachRoleCanDoNothingElse(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, "--endpoint", "mine")
	const others = "$JS.API.STREAM.CREATE.OTHER"
	tests := map[streams.Role][]string{
		streams.RoleControl: {"jobs.ep.n.x", "output.0.ep.x.1.1", "payloads.0.ep.x", "events.ep.queued.x.1.0", "$JS.API.STREAM.DELETE.EVENTS", "$JS.API.STREAM.DELETE.KV_keys", bus.MsgDelete(streams.Events)},
		streams.RoleAPI: {
			"output.0.ep.x.1.1", "events.ep.queued.x.1.0", "webhooks.ep.x.1", "$KV.keys.x", "$KV.endpoints.ep", "$KV.tokens.ep.w", others,
			"$JS.API.STREAM.DELETE.JOBS_ep", "$JS.API.STREAM.PURGE.KV_keys", bus.MsgDelete("KV_keys"),
		},
		streams.RoleGateway: {"jobs.ep.n.x", "events.ep.queued.x.1.0", "$KV.keys.x", "$KV.endpoints.ep", others, bus.MsgDelete("KV_tokens"), bus.MsgDelete(streams.Events)},
		streams.RoleRecorder: {
			"jobs.ep.n.x", "output.0.ep.x.1.1", "$KV.keys.x", "$KV.endpoints.ep", others, bus.PullNext("JOBS_ep", "normal"),
			bus.LeaderGet("KV_keys"), bus.DirectGet("KV_tokens"), "$JS.API.CONSUMER.CREATE.KV_keys",
		},
		streams.RoleWebhook: {
			"jobs.ep.n.x", "$KV.records_0.r.ep.x.1", "events.ep.queued.x.1.0", "$KV.endpoints.ep", others, bus.LeaderGet("KV_keys"), bus.LeaderGet("KV_records_0"),
			bus.LeaderGet("JOBS_ep"), "$JS.API.CONSUMER.CREATE.KV_tokens.x.$KV.tokens.>",
		},
		streams.RoleAutoscaler: {"jobs.ep.n.x", "$KV.records_0.r.ep.x.1", "$KV.keys.x", "$JS.API.STREAM.DELETE.JOBS_ep", others, bus.LeaderGet("KV_keys"), bus.PullNext("JOBS_ep", "normal")},
		streams.RoleWorker: {
			"jobs.mine.n.x", "$KV.records_0.r.ep.x.1", "output.0.ep.x.1.1", "$KV.endpoints.mine", "$KV.tokens.mine.w", "$KV.workers.ep.w", others,
			bus.PullNext("JOBS_ep", "normal"), bus.LeaderGet("JOBS_ep"), bus.LeaderGet("KV_keys"), bus.LeaderGet("KV_tokens"), bus.MsgDelete("JOBS_ep"),
		},
		streams.RoleReader: {"jobs.ep.n.x", "events.ep.queued.x.1.0", bus.StreamInfo(streams.Events), bus.LeaderGet("KV_keys"), others, "$JS.API.CONSUMER.CREATE.EVENTS"},
	}
	for role, subjects := range tests {
		for _, subject := range subjects {
			if err := g.try(role, func(nc *nats.Conn) error { return nc.Publish(subject, nil) }); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s publishes on %s: got %v, want a refusal", role, subject, err)
			}
		}
		foreign := []string{">", "_INBOX.>", "_INBOX_" + string(streams.RoleAdmin) + ".>", "$SYS.>", "$KV.>", "webhooks.>"}
		if role != streams.RoleAutoscaler { // it learns of the first job of an idle endpoint
			foreign = append(foreign, "jobs.>")
		}
		for _, subject := range foreign {
			if err := g.try(role, func(nc *nats.Conn) error { _, err := nc.SubscribeSync(subject); return err }); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s subscribes to %s: got %v, want a refusal", role, subject, err)
			}
		}
	}
	if err := g.try(streams.RoleAdmin, func(nc *nats.Conn) error { return nc.Publish("anything", nil) }); err != nil {
		t.Errorf("the administrator: %v", err)
	}
	for name, cfg := range map[string]bus.Config{"nobody": {URL: g.url}, "a wrong password": {URL: g.url, User: "api", Password: "guess"}} {
		if nc, err := bus.Connect(cfg); err == nil {
			nc.Close()
			t.Errorf("%s may come in", name)
		}
	}
}

// try does something as the role, and returns what the server says of it.
func (g *guarded) try(r streams.Role, do func(*nats.Conn) error) error {
	g.T.Helper()
	nc := g.connect(r)
	defer nc.Close()
	if err := do(nc); err != nil {
		return err
	}
	if err := nc.FlushTimeout(program.Soon); err != nil { // refusals come before the answer
		return err
	}
	return nc.LastError()
}
