package webhook

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"flightline/shared/netguard"
	"flightline/shared/registry"
)

const (
	// connectWithin bounds a connection, handshakeWithin what follows for TLS.
	connectWithin, handshakeWithin = 10 * time.Second, 10 * time.Second
	// idleFor is how long a connection is kept for the next webhook.
	idleFor = 30 * time.Second
	// headersMost bounds the headers of an answer.
	headersMost = 64 << 10
)

var (
	errNoHTTP  = errors.New("http is not allowed here, only https")
	errAddress = errors.New("the webhook is no http or https address")
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
	return target{url: u, origin: origin, shown: origin + u.EscapedPath()}
}

// targets remembers addresses, which many webhooks share. The zero value is
// ready.
type targets struct {
	mu    sync.Mutex
	known map[string]target
}

// targetsMost is how many are remembered, of targetLong bytes each at most.
const targetsMost, targetLong = 1024, 512

// of is targetOf.
func (t *targets) of(webhook string) target {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.known[webhook]; ok {
		return known
	}
	webhook = strings.Clone(webhook) // it is part of a message
	to := targetOf(webhook)
	if len(webhook) > targetLong {
		return to
	}
	if t.known == nil || len(t.known) >= targetsMost {
		t.known = map[string]target{}
	}
	t.known[webhook] = to
	return to
}

// allowed judges what is known before a name is resolved.
func (t target) allowed(cfg Config) error {
	switch {
	case t.err != nil:
		return t.err
	case t.url.Scheme == "http" && !cfg.AllowHTTP:
		return errNoHTTP
	}
	return nil
}

// newClient connects to allowed addresses only: each is judged after its name
// was resolved and right before the connection, so that no name can change
// its mind in between. It follows no redirect, asks no proxy, and keeps no
// cookies.
func newClient(cfg Config) *http.Client {
	dialer := netguard.Dialer(cfg.AllowNetworks, connectWithin)
	dialer.Resolver = cfg.resolver
	return &http.Client{
		Transport: netguard.Guard(&http.Transport{
			TLSHandshakeTimeout: handshakeWithin,
			MaxIdleConns:        cfg.AtOnce, MaxIdleConnsPerHost: cfg.PerHost, IdleConnTimeout: idleFor,
			MaxResponseHeaderBytes: headersMost, DisableCompression: true, ForceAttemptHTTP2: true,
		}, dialer),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
