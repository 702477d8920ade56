package app

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/cli"
	"flightline/services/console"
	"flightline/shared/client"
	"flightline/shared/process"
	"flightline/shared/registry"
	"flightline/shared/tlsconfig"
	"flightline/shared/web"
)

// traceID is what the id of a trace takes the place of.
const traceID = "{trace}"

// Traces say where people look at traces.
type Traces struct {
	TraceURL string `flag:"trace-url" env:"FLIGHTLINE_TRACE_URL" help:"address of a trace in the program that shows traces, for the console's link from a job, with {trace} for its id: https://grafana.example/explore?traceID={trace}; none by default"`
}

// check returns what is wrong with the setting.
func (t Traces) check() error {
	if t.TraceURL == "" {
		return nil
	}
	const want = "an address that begins with http:// or https://, with {trace} in its path, query or fragment and without a password"
	u, err := url.Parse(strings.ReplaceAll(t.TraceURL, traceID, "0"))
	before, _, found := strings.Cut(t.TraceURL, traceID)
	if err != nil || !found || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || !strings.ContainsAny(strings.TrimPrefix(strings.ToLower(before), u.Scheme+"://"), "/?#") {
		return wrong("trace-url", t.TraceURL, want)
	}
	return nil
}

// Console are the settings of the role.
type Console struct {
	ConsoleAPIURL     string `flag:"console-api-url" env:"FLIGHTLINE_CONSOLE_API_URL" help:"address of the API, as the console reaches it, or several with commas between them; this process by default, if it has the role api"`
	ConsoleControlURL string `flag:"console-control-url" env:"FLIGHTLINE_CONSOLE_CONTROL_URL" help:"address of the role control, if it has another one"`
	ConsoleCA         string `flag:"console-ca" env:"FLIGHTLINE_CONSOLE_CA" help:"path of the CA certificates that sign those of the API, as PEM; the system's by default"`
	ConsoleHost       string `flag:"console-host" env:"FLIGHTLINE_CONSOLE_HOST" help:"names by which browsers may ask for the console, with commas between them, besides those of loopback and addresses that are numbers"`
	Traces
	ConsoleSecure bool `flag:"console-secure-cookies" env:"FLIGHTLINE_CONSOLE_SECURE_COOKIES" help:"mark cookies as for TLS only, where a proxy in front ends it; with --tls-cert they are in any case"`
}

// check returns what is wrong with the settings of a process with these roles.
func (c Console) check(roles []string) error {
	if !slices.Contains(roles, roleConsole) {
		return nil
	}
	if err := c.Traces.check(); err != nil {
		return err
	}
	if c.ConsoleAPIURL == "" && !slices.Contains(roles, roleAPI) {
		return wrong("console-api-url", "", "the address of the API, as http://127.0.0.1:8080")
	}
	for flag, urls := range map[string]string{"console-api-url": c.ConsoleAPIURL, "console-control-url": c.ConsoleControlURL} {
		if urls == "" {
			continue
		}
		if _, err := client.New(urls, ""); err != nil {
			return &cli.UsageError{Err: fmt.Errorf("--%s: %w", flag, err)}
		}
	}
	return namesOf("console-host", c.ConsoleHost, "names without a port, with commas between them")
}

// consolePlan is how the console reaches the API, and how it is reached.
type consolePlan struct {
	url, control string
	ca           string // path, "" for the system's
	secure       bool
	hosts        web.Hosts
	traceURL     string // as Traces has it
}

// reachAPI is what the settings say, for a process with these listeners.
func (c Console) reachAPI(open *listeners) (consolePlan, error) {
	p := consolePlan{url: cmp.Or(c.ConsoleAPIURL, open.url()), ca: c.ConsoleCA, secure: c.ConsoleSecure || open.shown != nil, hosts: web.Hosts{}, traceURL: c.TraceURL}
	if c.ConsoleHost != "" {
		p.hosts = strings.Split(strings.ToLower(c.ConsoleHost), ",")
	}
	p.control = cmp.Or(c.ConsoleControlURL, p.url)
	if p.ca == "" {
		return p, nil
	}
	if _, err := (tlsconfig.Client{CA: p.ca}).Config(); err != nil {
		return p, &cli.UsageError{Err: fmt.Errorf("--console-ca: %w", err)}
	}
	return p, nil
}

const (
	// consolePatience is how long the console tries again while the API is away: its reader
	// waits.
	consolePatience = 2 * time.Second
	// consoleConns is how many idle connections to the API are kept.
	consoleConns = 64
)

// addConsole makes the console; serve adds its routes.
func (n *node) addConsole(ctx context.Context, p plan, js jetstream.JetStream) error {
	sessions, err := registry.OpenSessions(ctx, js)
	if err != nil {
		return err
	}
	actions, err := registry.OpenActions(ctx, js)
	if err != nil {
		return err
	}
	connect, err := p.console.connect(p.version)
	if err != nil {
		return err
	}
	n.console, err = console.New(console.Config{Version: p.version, Secure: p.console.secure, Hosts: p.console.hosts, TraceURL: p.console.traceURL, Log: p.log},
		console.Deps{Sessions: sessions, Actions: actions, Connect: connect, Durable: n.queue.Bus().Durable})
	return err
}

// connect makes clients of the API that share their connections.
func (p consolePlan) connect(version string) (func(key string) (console.API, error), error) {
	believed, err := tlsconfig.Client{CA: p.ca}.Config()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.MaxIdleConnsPerHost = believed, consoleConns
	shared := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return func(key string) (api console.API, err error) {
		of := func(address string) (*client.Client, error) {
			return client.New(address, key, client.WithHTTPClient(shared), client.WithUserAgent("flightline-console/"+version), client.WithPatience(consolePatience))
		}
		if api.Queue, err = of(p.url); err == nil {
			api.Control, err = of(p.control)
		}
		return api, err
	}, nil
}

// serveConsole adds the console, if the node has one.
func (n *node) serveConsole(app *fiber.App) {
	if n.console == nil {
		return
	}
	n.console.Routes(app)
	n.parts = append(n.parts, process.Part{Name: roleConsole, Run: n.console.Run})
}
