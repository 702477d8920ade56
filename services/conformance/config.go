package conformance

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// Config says what is tested, and what conform may rely on there.
type Config struct {
	// BaseURL is what comes before /v2 in the queue API's addresses, and Key a
	// key for it. Both are required.
	BaseURL, Key string
	// TLS is what clients believe and show at https addresses. nil believes the
	// authorities of the system.
	TLS *tls.Config
	// Transport sends every request, also those of the worker and in place of
	// TLS; nil makes one. A test observes or routes the requests with it.
	Transport http.RoundTripper
	// Endpoint is one whose handler returns its input. Required, unless conform
	// is the worker.
	Endpoint string
	// Slow is an endpoint whose jobs run for 10 s to 60 s, Failing one whose
	// jobs fail, Streaming one whose jobs stream, Idle one without workers; ""
	// for none.
	Slow, Failing, Streaming, Idle string
	// WorkerEnv is a RunPod worker's environment: with it conform is the
	// worker, which has to be the only one of its endpoint. nil for none.
	WorkerEnv map[string]string
	// Make makes an endpoint and a worker through Flightline's REST API, and
	// deletes both at the end.
	Make bool
	// RestURL and RestKey are those of the REST API; BaseURL and Key if "".
	RestURL, RestKey string
	// Pod is the id of a pod to look up, "" for none.
	Pod string
	// HookListen is where webhooks are received; "" is a port of 127.0.0.1, for
	// a server that is there too. HookURL is how the server reaches it, "" the
	// address itself.
	HookListen, HookURL string
	// Purge lets the jobs that wait at Idle be purged.
	Purge bool
	// Rates goes over rate limits, and Retention waits for results to be
	// forgotten, up to six minutes.
	Rates, Retention bool
	// Only and Skip select scenarios by name; each may hold the wildcards of
	// path.Match. Without Only all are played.
	Only, Skip []string
	// FactTimeout bounds waiting for a fact that should hold within moments; 0
	// means 30 s.
	FactTimeout time.Duration
	// Together is how many scenarios are played at once; at least 1.
	Together int
	// Progress, if not nil, is called after each scenario, by several goroutines:
	// played of all were.
	Progress func(played, all int)
}

// needs.
const (
	needSlow      = "slow"
	needFailing   = "failing"
	needStreaming = "streaming"
	needIdle      = "idle"
	needPurge     = "purge"
	needWorker    = "worker"
	needHooks     = "webhooks"
	needRest      = "rest"
	needRates     = "rates"
	needRetention = "retention"
)

// factTimeout is the default of Config.FactTimeout.
const factTimeout = 30 * time.Second

// ownWorker is how conform becomes the worker.
const ownWorker = "--worker-env or --make"

// provided says, for each need, whether it is met and what would meet it.
func (c Config) provided(need string) (met bool, by string) {
	own := c.worker()
	switch need {
	case needSlow:
		return own || c.Slow != "", "--slow-endpoint, " + ownWorker
	case needFailing:
		return own || c.Failing != "", "--failing-endpoint, " + ownWorker
	case needStreaming:
		return own || c.Streaming != "", "--streaming-endpoint, " + ownWorker
	case needIdle:
		return own || c.Idle != "", "--idle-endpoint, " + ownWorker
	case needPurge:
		return own || c.Idle != "" && c.Purge, "--idle-endpoint with --purge, " + ownWorker
	case needWorker:
		return own, ownWorker
	case needHooks:
		return c.HookListen != "" || loopback(c.BaseURL), "--webhook-listen (and --webhook-url), the server being elsewhere"
	case needRest:
		return c.RestURL != "" || c.Make, "--rest-url"
	case needRates:
		return c.Rates, "--rates"
	case needRetention:
		return c.Retention, "--retention"
	}
	return false, need
}

// missing is why a scenario with these needs cannot be played, "" if it can.
func (c Config) missing(needs []string) string {
	for _, need := range needs {
		if met, by := c.provided(need); !met {
			return "needs " + by
		}
	}
	return ""
}

func (c Config) worker() bool { return c.Make || c.WorkerEnv != nil }

// Check says what is wrong with the configuration, nil if nothing is.
func (c Config) Check() error {
	if c.BaseURL == "" {
		return errors.New("--url is required")
	}
	if c.Key == "" {
		return errors.New("--api-key is required")
	}
	if c.Make && c.WorkerEnv != nil {
		return errors.New("--make and --worker-env: only one of them")
	}
	if c.Endpoint == "" && !c.worker() {
		return errors.New("--endpoint: which one returns its input?")
	}
	for _, one := range []struct{ flag, value string }{{"--url", c.BaseURL}, {"--rest-url", c.RestURL}, {"--webhook-url", c.HookURL}} {
		if u, err := url.Parse(one.value); one.value != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("%s %q: must be an http or https address", one.flag, one.value)
		}
	}
	if err := c.checkSelection(); err != nil {
		return err
	}
	if c.WorkerEnv != nil {
		return checkEnv(c.WorkerEnv)
	}
	return nil
}

// checkSelection refuses a name of no scenario: a check that plays nothing, or less than
// was meant, must not pass.
func (c Config) checkSelection() error {
	all := Scenarios()
	for _, pattern := range append(append([]string{}, c.Only...), c.Skip...) {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%q: %w", pattern, err)
		}
		if !slices.ContainsFunc(all, func(s Scenario) bool { return matches([]string{pattern}, s.Name) }) {
			return fmt.Errorf("%q: no scenario has this name", pattern)
		}
	}
	if len(c.choose(all)) == 0 {
		return errors.New("--only and --skip leave no scenario")
	}
	return nil
}

// with fills in what follows from the rest.
func (c Config) with() Config {
	c.BaseURL = strings.TrimSuffix(strings.TrimRight(c.BaseURL, "/"), "/v2")
	if c.Make {
		c.RestURL = cmp.Or(c.RestURL, c.BaseURL)
	}
	c.RestURL, c.RestKey = strings.TrimRight(c.RestURL, "/"), cmp.Or(c.RestKey, c.Key)
	c.Together, c.FactTimeout = max(1, c.Together), cmp.Or(c.FactTimeout, factTimeout)
	if c.Transport == nil {
		c.Transport = &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true, Proxy: http.ProxyFromEnvironment, TLSClientConfig: c.TLS}
	}
	if c.WorkerEnv != nil {
		c.all(c.WorkerEnv[envEndpoint])
	}
	return c
}

// all makes one endpoint play every part.
func (c *Config) all(endpoint string) {
	c.Endpoint, c.Slow, c.Failing, c.Streaming, c.Idle = endpoint, endpoint, endpoint, endpoint, endpoint
}

func loopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
