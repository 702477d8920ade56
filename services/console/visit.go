package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/client"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// visit is one look at a screen, or one action, by a session.
type visit struct {
	ctx context.Context //nolint:containedctx // a visit is one request
	s   *Service
	// api is for the queue API, /v1/overview, /v1/failures and /v1/jobs, control for the
	// rest of /v1.
	api, control *client.Client
	apiKey       string
	self         client.Key
	scopes       []registry.Scope
	params       map[string]string
	query, form  url.Values
	follows      []string
	// still says that the page stays as it is while it is open.
	still bool
	// before is what the screen's load before returned, for an open page; else nil.
	before  any
	noticed string
	shown   *answered
}

// answered is a page that an action answers with, instead of a next page: what it
// has is shown once.
type answered struct {
	at   screen
	data any
}

// shows has an action answer with a page.
func (v *visit) shows(at screen, data any) { v.shown = &answered{at, data} }

// lastLoad is what the screen's load before returned, a zero value if there was none.
func lastLoad[T any](v *visit) *T {
	if last, ok := v.before.(*T); ok {
		return last
	}
	return new(T)
}

func (s *Service) newVisit(ctx context.Context, found *session, params map[string]string, query url.Values) *visit {
	v := &visit{ctx: ctx, s: s, api: found.api.Queue, control: found.api.Control, apiKey: found.apiKey, self: found.self, params: params, query: query}
	for _, text := range found.self.Scopes {
		if scope, err := registry.ParseScope(text); err == nil { // a scope of a later version shows no button
			v.scopes = append(v.scopes, scope)
		}
	}
	return v
}

// param is a parameter of the path, unescaped.
func (v *visit) param(name string) string { return v.params[name] }

// May reports whether the key may do what needs the permission, on the endpoint; it is
// "" for those that need none.
func (v *visit) May(need, endpoint string) bool {
	return registry.Key{Scopes: v.scopes}.Allows(endpoint, registry.Permission(need))
}

// mayReadSome reports whether the key may read at least one endpoint.
func (v *visit) mayReadSome() bool {
	return registry.Key{Scopes: v.scopes}.AllowsSome(registry.Read)
}

// follow has the screen loaded again as soon as something happens to a job of the endpoint;
// "" stands for all that the key may read.
func (v *visit) follow(endpoint string) {
	if !slices.Contains(v.follows, endpoint) {
		v.follows = append(v.follows, endpoint)
	}
}

// notice leaves a sentence for the page that comes next.
func (v *visit) notice(format string, args ...any) { v.noticed = fmt.Sprintf(format, args...) }

// view is what templates see.
type view struct {
	V *visit
	// D is what the screen loaded.
	D any
	// Title, Nav and Tab are those of the screen.
	Title, Nav, Tab string
}

// Endpoint is that of the path, "" for none.
func (w *view) Endpoint() string { return w.V.param("endpoint") }

// layoutView is a page around its content.
type layoutView struct {
	*view
	Content template.HTML
	Notice  string
	Live    string // the topic, "" for a page that does not change
	Version string
	Key     client.Key
	Screen  string
}

// pageError is an error with the status and the text of its page.
type pageError struct {
	status int
	text   string
}

func (e *pageError) Error() string { return e.text }

// page makes an error of a handler a page.
func (s *Service) page(handle fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		err := handle(c)
		if err == nil {
			return nil
		}
		status, text := problem(err)
		if isUnauthorized(err) {
			found, ok := s.signedIn(c)
			if !ok {
				return s.toSignIn(c)
			}
			text += " It has the scopes: " + strings.Join(found.self.Scopes, ", ") + "."
		}
		if status >= http.StatusInternalServerError {
			s.log.ErrorContext(c.UserContext(), "page not shown", "path", c.Path(), "request_id", web.RequestID(c), "err", err)
		}
		return s.renderProblem(c, status, text)
	}
}

// toSignIn sends the browser to the form. A link on another site brings no cookie: then the
// page is asked for again from here, which does.
func (s *Service) toSignIn(c *fiber.Ctx) error {
	next := localPath(strings.Clone(c.OriginalURL()))
	if c.Method() != fiber.MethodGet {
		next = Root + "/"
	}
	if c.Get(headerFetchSite) == crossSite && c.Method() == fiber.MethodGet && c.Cookies(cookieSession) == "" {
		return s.renderSignIn(c, fiber.StatusOK, signInView{Enter: next})
	}
	if c.Get(fiber.HeaderAccept) == eventStream {
		c.Set(fiber.HeaderContentType, eventStream)
		return c.SendString(signedOut) // a browser takes a status for an outage, and asks on
	}
	return c.Redirect(Root+"/sign-in?"+url.Values{"next": {next}}.Encode(), fiber.StatusSeeOther)
}

// problem is the status and text of an error for people.
func problem(err error) (status int, text string) {
	if own, ok := errors.AsType[*pageError](err); ok {
		return own.status, own.text
	}
	if isUnauthorized(err) {
		return http.StatusForbidden, "The API key of this session may not see or do this."
	}
	if refused, ok := errors.AsType[*client.Error](err); ok {
		return refused.Status, cmp.Or(refused.Message, http.StatusText(refused.Status))
	}
	if own, ok := errors.AsType[*web.Error](err); ok {
		return own.Code.Status(), own.Text
	}
	if errors.Is(err, client.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) {
		return http.StatusServiceUnavailable, "The API does not answer. Reload the page to try again."
	}
	if own, ok := errors.AsType[*fiber.Error](err); ok {
		return own.Code, own.Message
	}
	return http.StatusInternalServerError, "Something went wrong here; the request id below finds the line in the log."
}

// show answers with a screen.
func (s *Service) show(c *fiber.Ctx) error {
	found, err := s.session(c)
	if err != nil {
		return err
	}
	path := strings.Clone(strings.TrimPrefix(c.Path(), Root))
	at, params := s.screenAt(cmp.Or(path, "/"))
	if at == nil {
		return &pageError{status: fiber.StatusNotFound, text: "No such page."}
	}
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	v := s.newVisit(ctx, found, params, queryOf(c))
	data, err := at.load(v)
	if to, ok := errors.AsType[*redirect](err); ok {
		return c.Redirect(to.path, fiber.StatusSeeOther)
	}
	if err != nil {
		return err
	}
	return s.present(c, v, at, data)
}

// present answers with a page.
func (s *Service) present(c *fiber.Ctx, v *visit, at *screen, data any) error {
	w := &view{V: v, D: data, Title: at.title, Nav: at.nav, Tab: at.tab}
	var content bytes.Buffer
	if err := s.pages.ExecuteTemplate(&content, at.template, w); err != nil {
		return err
	}
	layout := layoutView{view: w, Content: template.HTML(content.String()), Notice: s.takeNotice(c), Version: s.cfg.Version, Key: v.self, Screen: at.template} //nolint:gosec // made by a template, which escapes
	if len(at.fragments) > 0 && !v.still {
		layout.Live = strings.Clone(string(c.Request().URI().RequestURI()))
	}
	return s.render(c, fiber.StatusOK, "layout", layout)
}

// redirect is the error of a screen that is elsewhere.
type redirect struct{ path string }

func (r *redirect) Error() string { return "see " + r.path }

// act does what a form asks for.
func (s *Service) act(c *fiber.Ctx) error {
	found, err := s.session(c)
	if err != nil {
		return err
	}
	form, err := url.ParseQuery(string(c.Request().Body())) // as it was sent: c.Body unfolds it without a bound
	if err != nil {
		return &pageError{status: fiber.StatusBadRequest, text: "The form cannot be read."}
	}
	if err := checkForm(c, found.apiKey, form.Get("csrf")); err != nil {
		return err
	}
	path := strings.Clone(strings.TrimPrefix(c.Path(), Root))
	at, params := s.actionAt(path)
	if at == nil {
		return &pageError{status: fiber.StatusNotFound, text: "No such action."}
	}
	ctx, cancel := context.WithTimeout(c.UserContext(), actTimeout)
	defer cancel()
	v := s.newVisit(ctx, found, params, queryOf(c))
	v.form = form
	next, err := at.do(v)
	if err != nil {
		return err
	}
	if v.shown != nil {
		return s.present(c, v, &v.shown.at, v.shown.data)
	}
	if v.noticed != "" {
		s.leaveNotice(c, v.noticed)
	}
	return c.Redirect(localPath(next), fiber.StatusSeeOther)
}

// actTimeout bounds what a form does.
const actTimeout = 30 * time.Second

// queryOf is the query of a request, in memory of its own.
func queryOf(c *fiber.Ctx) url.Values {
	query, err := url.ParseQuery(string(c.Request().URI().QueryString()))
	if err != nil {
		return url.Values{}
	}
	return query
}

func (s *Service) render(c *fiber.Ctx, status int, name string, data any) error {
	var page bytes.Buffer
	if err := s.pages.ExecuteTemplate(&page, name, data); err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	return c.Status(status).Send(page.Bytes())
}

func (s *Service) renderSignIn(c *fiber.Ctx, status int, v signInView) error {
	return s.render(c, status, "sign-in", v)
}

// problemView is the page of an error.
type problemView struct {
	Status          int
	Word, Text      string
	RequestID, Back string
}

func (s *Service) renderProblem(c *fiber.Ctx, status int, text string) error {
	return s.render(c, status, "problem", problemView{Status: status, Word: http.StatusText(status), Text: text, RequestID: web.RequestID(c), Back: Root + "/"})
}
