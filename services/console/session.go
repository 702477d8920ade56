package console

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

const (
	cookieSession = "flightline_session"
	cookieNotice  = "flightline_notice"
	// maxSignIn bounds the body of a sign-in.
	maxSignIn = 8 << 10
	// sessionAge is how long what a session may do is not asked again.
	sessionAge = 5 * time.Second
	// maxCached bounds the sessions that are in memory.
	maxCached = 10_000
)

// session is an API key that somebody signed in with.
type session struct {
	token, apiKey string
	self          client.Key
	api           API
	asked         time.Time
}

// sessionCache has the sessions that were used a moment ago.
type sessionCache struct {
	mu   sync.Mutex
	list map[string]*session
}

func (c *sessionCache) get(token string, now time.Time) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.list[token]; found != nil && now.Sub(found.asked) < sessionAge {
		return found
	}
	return nil
}

func (c *sessionCache) put(found *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) >= maxCached {
		clear(c.list)
	}
	c.list[found.token] = found
}

func (c *sessionCache) drop(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.list, token)
}

// session is that of the request's cookie, or registry.ErrUnauthorized.
func (s *Service) session(c *fiber.Ctx) (*session, error) {
	token := strings.Clone(c.Cookies(cookieSession))
	if token == "" {
		return nil, registry.ErrUnauthorized
	}
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	return s.sessionOf(ctx, token)
}

func (s *Service) sessionOf(ctx context.Context, token string) (*session, error) {
	if found := s.sessions.get(token, time.Now()); found != nil {
		return found, nil
	}
	key, err := s.deps.Sessions.Open(ctx, token)
	if err != nil {
		return nil, err
	}
	return s.openAs(ctx, token, key)
}

// open asks the API what a key may do. It returns registry.ErrUnauthorized for an unknown one.
func (s *Service) open(ctx context.Context, key string) (*session, error) {
	api, err := s.deps.Connect(key)
	if err != nil {
		return nil, err
	}
	self, err := api.Control.Keys().Self(ctx)
	if isUnauthorized(err) {
		return nil, registry.ErrUnauthorized
	}
	if err != nil {
		return nil, err
	}
	return &session{apiKey: key, self: *self, api: api, asked: time.Now()}, nil
}

// openAgain is open for a key that is asked for all the time.
func (s *Service) openAgain(ctx context.Context, key string) (*session, error) {
	name := "key " + key // no token has a space
	if found := s.sessions.get(name, time.Now()); found != nil {
		return found, nil
	}
	return s.openAs(ctx, name, key)
}

// openAs is open of a session that is remembered by the token.
func (s *Service) openAs(ctx context.Context, token, key string) (*session, error) {
	found, err := s.open(ctx, key)
	if err != nil {
		return nil, err
	}
	found.token = token
	s.sessions.put(found)
	return found, nil
}

// signedIn is the request's session, if its key is still known: then it is the
// permission that was missing.
func (s *Service) signedIn(c *fiber.Ctx) (*session, bool) {
	s.sessions.drop(c.Cookies(cookieSession))
	found, err := s.session(c)
	return found, err == nil
}

// isUnauthorized reports whether a key is unknown, or cannot be one.
func isUnauthorized(err error) bool {
	refused, ok := errors.AsType[*client.Error](err)
	return errors.Is(err, registry.ErrUnauthorized) || errors.Is(err, client.ErrKey) || ok && refused.Status == http.StatusUnauthorized
}

// signInView is what the page of the sign-in shows.
type signInView struct {
	Next, Error string
	// Enter is where the browser goes at once, "" for a form.
	Enter string
}

// signInPage shows the form, or takes a link that signs in once. It answers with a page that
// goes on, not with a redirect: what follows must come from this site, to bring the cookie.
func (s *Service) signInPage(c *fiber.Ctx) error {
	next := localPath(strings.Clone(c.Query("next")))
	if once := strings.Clone(c.Query("once")); once != "" {
		key, unused := s.once.LoadAndDelete(once)
		if !unused {
			return s.renderSignIn(c, fiber.StatusUnauthorized, signInView{Next: next, Error: "This link was used before. Paste an API key; `flightline env` prints the one of `flightline dev`."})
		}
		if err := s.begin(c, key.(string)); err != nil { //nolint:forcetypeassert // we put nothing else
			s.once.Store(once, key) // it signed nobody in
			return err
		}
		return s.renderSignIn(c, fiber.StatusOK, signInView{Enter: next})
	}
	return s.renderSignIn(c, fiber.StatusOK, signInView{Next: next})
}

// signIn begins a session of the key in the form.
func (s *Service) signIn(c *fiber.Ctx) error {
	if !fromHere(c) {
		return &pageError{status: fiber.StatusForbidden, text: "Sign in with the form of this console."}
	}
	key, next := strings.TrimSpace(strings.Clone(c.FormValue("key"))), localPath(strings.Clone(c.FormValue("next")))
	if wait := web.Barred(c); wait > 0 {
		return web.TooManyUnknown(c, wait)
	}
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	_, err := s.open(ctx, key)
	if isUnauthorized(err) || key == "" {
		web.Refused(c)
		return s.renderSignIn(c, fiber.StatusUnauthorized, signInView{Next: next, Error: "No such API key."})
	}
	if err != nil {
		return err
	}
	if err := s.begin(c, key); err != nil {
		return err
	}
	return c.Redirect(next, fiber.StatusSeeOther)
}

// begin makes a session and gives the browser its cookie.
func (s *Service) begin(c *fiber.Ctx, key string) error {
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	token, err := s.deps.Sessions.Create(ctx, key)
	if err != nil {
		return err
	}
	s.setCookie(c, cookieSession, token, streams.SessionAge)
	return nil
}

// signOut ends the session, everywhere within seconds, also while the API is away.
func (s *Service) signOut(c *fiber.Ctx) error {
	token := strings.Clone(c.Cookies(cookieSession))
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	apiKey, err := s.deps.Sessions.Open(ctx, token)
	if err == nil {
		if err := checkForm(c, apiKey, c.FormValue("csrf")); err != nil {
			return err
		}
		err = s.deps.Sessions.End(ctx, token)
	}
	if err != nil && !errors.Is(err, registry.ErrUnauthorized) {
		return err
	}
	s.sessions.drop(token)
	s.setCookie(c, cookieSession, "", -1)
	return c.Redirect(Root+"/sign-in", fiber.StatusSeeOther)
}

// setCookie sets a cookie of our pages for age; a negative one removes it.
func (s *Service) setCookie(c *fiber.Ctx, name, value string, age time.Duration) {
	cookie := &fiber.Cookie{Name: name, Value: value, Path: Root, HTTPOnly: true, Secure: s.cfg.Secure, SameSite: fiber.CookieSameSiteStrictMode}
	if cookie.MaxAge = int(age / time.Second); age < 0 {
		cookie.MaxAge, cookie.Expires = -1, time.Unix(1, 0)
	}
	c.Cookie(cookie)
}

// takeNotice is the sentence that the last action left, which is shown once.
func (s *Service) takeNotice(c *fiber.Ctx) string {
	text, err := base64.RawURLEncoding.DecodeString(c.Cookies(cookieNotice))
	if err != nil || len(text) == 0 {
		return ""
	}
	s.setCookie(c, cookieNotice, "", -1)
	return string(text)
}

// noticeAge is how long the next page may take to come.
const noticeAge = 30 * time.Second

func (s *Service) leaveNotice(c *fiber.Ctx, text string) {
	const maxNotice = 1000
	s.setCookie(c, cookieNotice, base64.RawURLEncoding.EncodeToString([]byte(job.Cut(text, maxNotice))), noticeAge)
}
