package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/url"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/errgroup"

	"flightline/shared/client"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// Root is the path of all pages.
const Root = "/ui"

// maxForm bounds what a form sends: the input of a job and its fields, urlencoded.
const maxForm = 16 << 20

// API is how a session reaches the API. Both may be one client.
type API struct {
	// Queue is for the routes of the role api, Control for those of the role control.
	Queue, Control *client.Client
}

// Config is what may differ between installations. The zero value is good.
type Config struct {
	// Version is shown to who is signed in.
	Version string
	// Secure marks the cookies as for TLS only.
	Secure bool
	// Hosts are names by which the console may be asked, besides those of loopback and
	// addresses that are numbers. nil means any.
	Hosts web.Hosts
	// TraceURL is the address of a trace, with {trace} for its id; "" shows no link.
	TraceURL string
	// Log receives what no answer says. nil discards it.
	Log *slog.Logger
}

// Deps are what the service stands on.
type Deps struct {
	// Sessions keeps who is signed in, Actions what is done to many jobs.
	Sessions *registry.Sessions
	Actions  *registry.Actions
	// Connect makes the clients of an API key.
	Connect func(apiKey string) (API, error)
	// Durable returns once what was written to a stream is on the disk. nil stands for a
	// NATS that answers a write no sooner.
	Durable func(ctx context.Context, stream string) error
}

// Service serves the console.
type Service struct {
	cfg      Config
	deps     Deps
	log      *slog.Logger
	pages    *template.Template
	screens  []screen
	actions  []action
	sessions *sessionCache
	hub      *hub
	events   *tails[client.Event]
	lines    *tails[client.LogLine]
	starts   chan func(context.Context)
	once     sync.Map // the API key of each link that signs in once, by its token
}

//go:embed templates/*.html
var templates embed.FS

// New returns a service that is ready for Routes. It starts nothing, and fails if a
// dependency is missing.
func New(cfg Config, deps Deps) (*Service, error) {
	if deps.Sessions == nil || deps.Actions == nil || deps.Connect == nil {
		return nil, errors.New("console: sessions, actions and a way to the API are needed")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &Service{
		cfg: cfg, deps: deps, log: cfg.Log, screens: screens(), actions: actions(), sessions: &sessionCache{list: map[string]*session{}},
		events: newTails[client.Event](), lines: newTails[client.LogLine](), starts: make(chan func(context.Context)),
	}
	s.hub = &hub{s: s, topics: map[topicID]*topic{}}
	var err error
	if s.pages, err = template.New("").Funcs(functions()).ParseFS(templates, "templates/*.html"); err != nil {
		return nil, err
	}
	return s, nil
}

// Run does what outlives a request, such as watching what open pages show, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case work := <-s.starts:
			g.Go(func() error {
				work(ctx)
				return nil
			})
		}
	}
}

// start has Run do work. It returns false if asked ends first.
func (s *Service) start(asked context.Context, work func(context.Context)) bool {
	select {
	case s.starts <- work:
		return true
	case <-asked.Done():
		return false
	}
}

// Routes adds the console to the app.
func (s *Service) Routes(app *fiber.App) {
	ui := app.Group(Root, s.secure)
	ui.Get("/static/:file", serveStatic)
	ui.Get("/sign-in", s.page(s.signInPage))
	ui.Post("/sign-in", web.MaxBody(maxSignIn), s.page(s.signIn))
	ui.Post("/sign-out", web.MaxBody(maxSignIn), s.page(s.signOut))
	ui.Get("/live", s.page(s.live))
	ui.Get("/e/:endpoint/jobs/:id/stream", s.page(s.streamOutput))
	ui.Get("/e/:endpoint/jobs/:id/media/:index", s.page(s.serveMedia))
	ui.Get("/*", s.page(s.show))
	ui.Post("/*", web.MaxBody(maxForm), s.page(s.act))
}

// Known answers whether a request to the console comes with a session, before its body is
// read; ours is false for requests to other routes.
func (s *Service) Known(c *fiber.Ctx) (ours bool, err error) {
	if path := c.Path(); path != Root && !strings.HasPrefix(path, Root+"/") {
		return false, nil
	}
	_, err = s.session(c)
	return true, err
}

// OnceLink is the path of a link that signs a browser in with the API key, once, as long as
// this process lives.
func (s *Service) OnceLink(apiKey string) string {
	token := rand.Text()
	s.once.Store(token, apiKey)
	return Root + "/sign-in?" + url.Values{"once": {token}}.Encode()
}
