package client

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client talks to one Flightline server. It is safe for concurrent use and
// keeps connections for reuse; make one and share it.
type Client struct {
	base  string // without a trailing slash
	key   string
	agent string
	http  *http.Client
}

// Option changes how New sets a Client up.
type Option func(*Client)

// WithHTTPClient sends requests with h instead of a client of its own. h must
// have no Timeout shorter than the longest wait, as it would cut waits off.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithUserAgent names the program in the User-Agent header, else it is
// "flightline-go".
func WithUserAgent(agent string) Option { return func(c *Client) { c.agent = agent } }

// connsPerHost is how many idle connections are kept. The default of net/http,
// 2, would make a busy submitter dial for nearly every job.
const connsPerHost = 256

// New returns a client of the server at baseURL, as "http://127.0.0.1:8080". A
// trailing slash or "/v2", which RunPod's base addresses carry, is dropped.
// apiKey goes with every request; "" sends none. The only error is a baseURL
// that is no http or https address.
func New(baseURL, apiKey string, opts ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("client: %q is no http or https address", baseURL)
	}
	base := strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/")
	c := &Client{base: strings.TrimSuffix(base, "/v2"), key: apiKey, agent: "flightline-go"}
	for _, opt := range opts {
		opt(c)
	}
	if c.http == nil {
		c.http = newHTTPClient()
	}
	return c, nil
}

func newHTTPClient() *http.Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		MaxIdleConns:        connsPerHost,
		MaxIdleConnsPerHost: connsPerHost,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
	}
	return &http.Client{
		Transport: transport,
		// A redirect would turn a POST into a GET and carry the key elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// BaseURL is the server's address, without a trailing slash.
func (c *Client) BaseURL() string { return c.base }
