package web

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
)

const (
	// checkWithin bounds one look of a check, checkAge how old its result may
	// be: anybody may ask, and must not cost NATS more than that.
	checkWithin = 2 * time.Second
	checkAge    = time.Second
	// liveTimeout is how long /healthz waits for the checks: a supervisor restarts what does
	// not answer within a second, as a rule.
	liveTimeout = 500 * time.Millisecond
)

// What health says of a process and of its checks.
const (
	healthOK          = "ok"
	healthUnavailable = "unavailable"
	healthStopping    = "stopping"
	healthUnknown     = "unknown"
)

// Check is something that a process needs to serve. The text of its error is
// shown to nobody, unless it is a ShownError: the routes need no key.
type Check struct {
	// Name is a key of the answer.
	Name string
	// Look returns nil if all is well; its context ends after 2 s. A check
	// without one never makes the process unready.
	Look func(context.Context) error
	// Say, if not nil, is asked for a word to show where all is well, such as
	// "active" or "standby". "" is "ok".
	Say func(context.Context) string
}

// ShownError is an error of Check.Look whose text is shown to all who ask.
type ShownError string

func (e ShownError) Error() string { return string(e) }

// Health answers balancers and supervisors how the process is.
type Health struct {
	version  string
	roles    []string
	checks   []Check
	stopping atomic.Bool

	looks singleflight.Group // one look serves all who ask
	last  atomic.Pointer[checked]
}

// checked is what came of all checks, and when.
type checked struct {
	at      time.Time
	results []result
}

// result is what came of a check.
type result struct {
	failed bool
	word   string
}

// NewHealth returns the health of a process of this version with these roles.
// It is ready while all checks pass, until it stops.
func NewHealth(version string, roles []string, checks ...Check) *Health {
	return &Health{version: version, roles: roles, checks: checks}
}

// Routes adds /healthz, which is 200 as long as the process answers, and
// /readyz, which is 503 while it cannot serve: a process must not be restarted
// because NATS is away. Both have the same body; /healthz does not wait for checks that take
// long. "/" says what this server is.
//
// To a request that arrives at a route added later while the process stops, the
// answer says that the connection ends: the next one is made elsewhere.
func (h *Health) Routes(app *fiber.App) {
	app.Use(func(c *fiber.Ctx) error {
		if h.stopping.Load() {
			c.Context().SetConnectionClose()
		}
		return c.Next()
	})
	app.Get("/", func(c *fiber.Ctx) error {
		return c.JSON(aboutView{Name: "flightline", Version: h.version, OpenAPI: "/openapi.json", Health: "/readyz"})
	})
	app.Get("/healthz", func(c *fiber.Ctx) error { return c.JSON(h.view(time.After(liveTimeout))) })
	app.Get("/readyz", func(c *fiber.Ctx) error {
		view := h.view(nil)
		if view.Status != healthOK {
			c.Status(fiber.StatusServiceUnavailable)
		}
		return c.JSON(view)
	})
}

// aboutView is the body of "/": for people who open the address in a browser.
type aboutView struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	OpenAPI string `json:"openapi"`
	Health  string `json:"health"`
}

// healthView is the body of both.
type healthView struct {
	Status  string            `json:"status"`
	Version string            `json:"version"`
	Roles   []string          `json:"roles"`
	Checks  map[string]string `json:"checks"`
}

// view is the body, with what is known by late; nil waits for the checks.
func (h *Health) view(late <-chan time.Time) healthView {
	view := healthView{Status: healthOK, Version: h.version, Roles: h.roles, Checks: map[string]string{}}
	for i, r := range h.results(late) {
		view.Checks[h.checks[i].Name] = r.word
		if r.failed {
			view.Status = healthUnavailable
		}
	}
	if h.stopping.Load() {
		view.Status = healthStopping
	}
	return view
}

// results are what came of the checks, at most a second ago, or unknown if it is late.
func (h *Health) results(late <-chan time.Time) []result {
	if last := h.last.Load(); last != nil && time.Since(last.at) < checkAge {
		return last.results
	}
	looked := h.looks.DoChan("", func() (any, error) {
		last := h.look()
		h.last.Store(last)
		return last, nil
	})
	select {
	case last := <-looked:
		return last.Val.(*checked).results //nolint:forcetypeassert // made above
	case <-late:
		return slices.Repeat([]result{{failed: true, word: healthUnknown}}, len(h.checks))
	}
}

// look may outlive the request that asked for it.
func (h *Health) look() *checked {
	ctx, cancel := context.WithTimeout(context.Background(), checkWithin)
	defer cancel()
	results := make([]result, len(h.checks))
	var g errgroup.Group
	for i, check := range h.checks {
		g.Go(func() error {
			results[i] = check.result(ctx)
			return nil
		})
	}
	_ = g.Wait() // never fails
	return &checked{at: time.Now(), results: results}
}

func (c Check) result(ctx context.Context) result {
	if c.Look != nil {
		if err := c.Look(ctx); err != nil {
			shown, _ := errors.AsType[ShownError](err)
			return result{failed: true, word: cmp.Or(string(shown), healthUnavailable)}
		}
	}
	if c.Say != nil {
		return result{word: cmp.Or(c.Say(ctx), healthOK)}
	}
	return result{word: healthOK}
}

// Stop makes the process unready for good, as the end of Drained's context does:
// for a process that has more to end before it stops to serve.
func (h *Health) Stop() { h.stopping.Store(true) }

// Drained returns a context that ends the delay after ctx does. In between the
// process is not ready, and serves nevertheless: balancers have that long to
// send their requests elsewhere. The caller calls the function when it is done.
func (h *Health) Drained(ctx context.Context, delay time.Duration) (context.Context, context.CancelFunc) {
	drained, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		h.Stop()
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-drained.Done():
		}
	})
	return drained, func() {
		stop()
		cancel()
	}
}
