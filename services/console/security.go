package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/web"
)

// policy is what a page may load: what this server has, pictures and sounds that are in the
// page itself, and nothing of another host. Nobody may frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Headers of requests and answers, by which browsers say and learn what is allowed.
const (
	headerFetchSite = "Sec-Fetch-Site"
	headerOpener    = "Cross-Origin-Opener-Policy"
	headerResource  = "Cross-Origin-Resource-Policy"
	headerFeatures  = "Permissions-Policy"
	sameOrigin      = "same-origin"
	crossSite       = "cross-site"
)

// secure puts the headers on each answer and refuses requests by a foreign name.
func (s *Service) secure(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentSecurityPolicy, policy)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderXFrameOptions, "DENY")
	c.Set(fiber.HeaderReferrerPolicy, sameOrigin)
	c.Set(headerOpener, sameOrigin)
	c.Set(headerResource, sameOrigin)
	c.Set(headerFeatures, "camera=(), geolocation=(), microphone=()")
	c.Set(fiber.HeaderCacheControl, "no-store")
	if host := string(c.Request().Host()); !allowsHost(s.cfg.Hosts, host) {
		return web.Errorf(web.InvalidRequest, "host %.200q is not served here: use a loopback address, or allow the name with --console-host", host)
	}
	return c.Next()
}

// allowsHost reports whether a page may be asked for by this Host. Nobody can point a number
// elsewhere, as a name can be (DNS rebinding).
func allowsHost(hosts web.Hosts, host string) bool {
	name := host
	if bare, _, err := net.SplitHostPort(host); err == nil {
		name = bare
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	return hosts.Allow(host)
}

// fromHere reports whether a request that changes something comes from one of our pages, as
// far as its browser says.
func fromHere(c *fiber.Ctx) bool {
	if site := c.Get(headerFetchSite); site != "" {
		return site == sameOrigin
	}
	if origin := c.Get(fiber.HeaderOrigin); origin != "" {
		u, err := url.Parse(origin)
		return err == nil && strings.EqualFold(u.Host, string(c.Request().Host()))
	}
	return true // an old browser, or none: the token decides
}

// csrfOf is the token in forms of sessions of an API key, which pages of others cannot know.
// It is the same for all sessions of the key, so that they share fragments.
func csrfOf(apiKey string) string {
	mac := hmac.New(sha256.New, []byte(apiKey))
	_, _ = mac.Write([]byte("flightline console form")) // never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// checkForm refuses a request to change something that no form of ours made.
func checkForm(c *fiber.Ctx, apiKey, token string) error {
	if !fromHere(c) || !hmac.Equal([]byte(token), []byte(csrfOf(apiKey))) {
		return &pageError{status: fiber.StatusForbidden, text: "This form was not made by this console, or by an earlier session. Go back, reload the page and try again."}
	}
	return nil
}

// localPath is a path beneath Root to go to, Root for anything else: nobody is led elsewhere.
func localPath(path string) string {
	u, err := url.Parse(path)
	if err != nil || u.IsAbs() || u.Host != "" || u.Opaque != "" || strings.ContainsAny(path, "\\\r\n\t") ||
		u.Path != Root && !strings.HasPrefix(u.Path, Root+"/") {
		return Root + "/"
	}
	return u.RequestURI()
}
