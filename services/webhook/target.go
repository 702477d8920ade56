package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"flightline/shared/netguard"
	"flightline/shared/registry"
)

const (
	// connectTimeout bounds a connection, handshakeTimeout what follows for TLS.
	connectTimeout, handshakeTimeout = 10 * time.Second, 10 * time.Second
	// idleTimeout is how long a connection is kept for the next webhook.
	idleTimeout = 30 * time.Second
	// maxHeaders bounds the headers of an answer.
	maxHeaders = 64 << 10
)

var (
	errNoHTTP  = errors.New("http is not allowed here, only https")
	errAddress = errors.New("the webhook must begin with http:// or https://")
)

// target is where a webhook goes.
type target struct {
	url *url.URL
	// origin is the scheme, host and port.
	origin string
	// shown is the address without what may be secret.
	shown string
	err   error
}

func targetOf(webhook string) target {
	origin, ok := registry.OriginOf(webhook)
	u, err := url.Parse(webhook)
	if err != nil || !ok {
		return target{origin: "invalid:", shown: "invalid:", err: errAddress}
	}
	u.RawQuery = escapeQuery(u.RawQuery)
	return target{url: u, origin: origin, shown: origin + u.EscapedPath()}
}

// escapeQuery percent-encodes what no line of a request may have, as browsers
// do: net/url leaves a query as it is, and receivers refuse one with a space
// or a letter beyond ASCII.
func escapeQuery(raw string) string {
	var b strings.Builder
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '<' || c == '>' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// allowed checks what is known before a name is resolved.
func (t target) allowed(cfg Config) error {
	switch {
	case t.err != nil:
		return t.err
	case t.url.Scheme == "http" && !cfg.AllowHTTP:
		return errNoHTTP
	}
	return nil
}

// newClient connects to allowed addresses only. Each address is checked after
// its name was resolved and right before the connection, so that DNS rebinding
// gains nothing. It follows no redirect, uses no proxy, and keeps no cookies.
func newClient(cfg Config) *http.Client {
	dialer := netguard.Dialer(cfg.AllowNetworks, connectTimeout)
	dialer.Resolver = cfg.resolver
	return &http.Client{
		Transport: netguard.Guard(&http.Transport{
			TLSHandshakeTimeout: handshakeTimeout,
			MaxIdleConns:        cfg.MaxConcurrency, MaxIdleConnsPerHost: cfg.MaxPerHost, IdleConnTimeout: idleTimeout,
			MaxResponseHeaderBytes: maxHeaders, DisableCompression: true, ForceAttemptHTTP2: true,
		}, dialer),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
