package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
)

// Client talks to one Flightline, at one of its addresses at a time. It is safe
// for concurrent use and keeps connections for reuse; make one and share it.
type Client struct {
	bases    []string // without a trailing slash
	at       atomic.Uint32
	key      string
	agent    string
	patience time.Duration
	keyed    bool // submissions without an IdempotencyKey get one
	tls      *tls.Config
	http     *http.Client
}

// Option changes how New sets a Client up.
type Option func(*Client)

// WithHTTPClient sends requests with h instead of a client of its own. h must
// have no Timeout shorter than the longest wait, as it would cut waits off.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithTLS says whom the client believes and what it shows at https addresses, if
// the system's authorities will not do. nil changes nothing, and neither does it
// beside WithHTTPClient.
func WithTLS(config *tls.Config) Option { return func(c *Client) { c.tls = config } }

// WithUserAgent names the program in the User-Agent header, else it is
// "flightline-go".
func WithUserAgent(agent string) Option { return func(c *Client) { c.agent = agent } }

// WithPatience says how long a call that may be repeated is repeated, counted
// from its first failure, while the server is away, busy, or limits the rate: 30 s
// unless this says otherwise; 0 and less than 0 mean not at all.
func WithPatience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// WithRepeatableRuns gives each Run and RunSync whose Request has no
// IdempotencyKey a random one, so that they are repeated too when no answer
// came, and still make one job. The server writes once more for each.
func WithRepeatableRuns() Option { return func(c *Client) { c.keyed = true } }

// connsPerHost is how many idle connections are kept. The default of net/http,
// 2, would make a busy submitter dial for nearly every job.
const connsPerHost = 256

const (
	// dialWithin is how long an address may take to accept a connection: a host that
	// drops packets must leave time for the others.
	dialWithin = 5 * time.Second
	// keepAlive is when a silent connection is probed, as in net/http.
	keepAlive = 30 * time.Second
)

// ErrKey means that an API key has a control character, which no header may have.
var ErrKey = errors.New("client: the API key must not have control characters, such as a line break")

// New returns a client of the server at baseURL, as "http://127.0.0.1:8080", or
// of several that are the same Flightline, with commas between them: the next one
// is tried when one does not answer, or answers 503. A trailing slash or "/v2",
// which RunPod's base addresses carry, is dropped. apiKey goes with every
// request, to each of them; "" sends none. The only errors are a baseURL that is no
// http or https address or has a user, a query or a fragment, and ErrKey.
func New(baseURL, apiKey string, opts ...Option) (*Client, error) {
	if strings.ContainsFunc(apiKey, unicode.IsControl) {
		return nil, ErrKey
	}
	c := &Client{key: apiKey, agent: "flightline-go", patience: defaultPatience}
	for one := range strings.SplitSeq(baseURL, ",") {
		base, err := baseOf(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		c.bases = append(c.bases, base)
	}
	for _, opt := range opts {
		opt(c)
	}
	if c.http == nil {
		c.http = newHTTPClient(c.tls, dialWithin)
	}
	return c, nil
}

func baseOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", fmt.Errorf("client: %q must begin with http:// or https://", address)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("client: the address of %s must have no user, query or fragment: no request would have them", u.Host)
	}
	base := strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/")
	return strings.TrimSuffix(base, "/v2"), nil
}

func newHTTPClient(config *tls.Config, dial time.Duration) *http.Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dial, KeepAlive: keepAlive}).DialContext,
		MaxIdleConns:        connsPerHost,
		MaxIdleConnsPerHost: connsPerHost,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
		TLSClientConfig:     config,
		ForceAttemptHTTP2:   true,
	}
	return &http.Client{
		Transport: transport,
		// A redirect would turn a POST into a GET and carry the key elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// BaseURL is the address that the next request goes to, without a trailing slash.
func (c *Client) BaseURL() string { return c.base(c.at.Load()) }

func (c *Client) base(at uint32) string { return c.bases[at%uint32(len(c.bases))] } //nolint:gosec // a handful

// leave makes requests go to the next address, unless another one has found out
// before that the server at this one is away.
func (c *Client) leave(at uint32) { c.at.CompareAndSwap(at, at+1) }
