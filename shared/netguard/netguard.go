// Package netguard keeps connections to addresses that a caller names, such as
// webhooks and the S3 server of a job, out of private networks. The address is
// judged after its name was resolved and right before the connection, so that
// a name which changes its address gains nothing.
package netguard

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"code.dny.dev/ssrf"
)

// ErrAddress is returned for a connection to an address that is neither public
// nor allowed. The text names the address.
var ErrAddress = ssrf.ErrProhibitedIP

// ErrNetworks is returned by ParseNetworks.
var ErrNetworks = errors.New("must be networks like 10.1.0.0/16")

// ErrSwitched is returned in place of an answer of status 101. No request asks for another
// protocol, and the end of a context does not end the body of such an answer.
var ErrSwitched = errors.New("the server answered with status 101 and switched protocols")

// Dialer returns a dialer that connects to public addresses and to the allowed
// networks only, at any port. Loopback, private, link-local and metadata
// networks and their IPv6 forms are refused with ErrAddress.
func Dialer(allowed []netip.Prefix, timeout time.Duration) *net.Dialer {
	var four, six []netip.Prefix
	for _, p := range allowed {
		if p.Addr().Is4() {
			four = append(four, p)
		} else {
			six = append(six, p)
		}
	}
	guard := ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(four...), ssrf.WithAllowedV6Prefixes(six...))
	return &net.Dialer{Timeout: timeout, Control: guard.Safe}
}

// Guard makes the transport connect by the dialer, and by no proxy: a proxy
// would connect to an address that nothing here judges. An answer of status 101 becomes
// ErrSwitched.
func Guard(t *http.Transport, d *net.Dialer) http.RoundTripper {
	t.DialContext, t.Proxy = d.DialContext, nil
	return guarded{t}
}

type guarded struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := t.Transport.RoundTrip(req)
	if err == nil && answer.StatusCode == http.StatusSwitchingProtocols {
		_ = answer.Body.Close()
		return nil, ErrSwitched
	}
	return answer, err
}

// ParseNetworks reads networks with commas between them, such as
// "10.1.0.0/16,fd00:1::/32". The empty text means none. Its error quotes the
// part that is wrong and is an ErrNetworks.
func ParseNetworks(text string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		network, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, ErrNetworks)
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}
