package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"flightline/services/cli"
	"flightline/shared/tlsconfig"
	"flightline/shared/web"
)

// listeners are where a process is reached.
type listeners struct {
	requests net.Listener
	scrapes  net.Listener      // nil for nowhere
	shown    *tlsconfig.Server // to all who come; nil for plain HTTP
}

// openCerts reads what listeners show, nil for plain HTTP.
func openCerts(files tlsconfig.Files, log *slog.Logger) (*tlsconfig.Server, error) {
	shown, err := tlsconfig.Open(files, log)
	if err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("--tls-cert, --tls-key: %w", err)}
	}
	return shown, nil
}

// notListening is the error of a flag whose address nothing can listen at.
func notListening(flag string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %w: another program listens there; give another address; port 0 takes a free one", flag, err)
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// openListeners listens at the addresses of --listen and --metrics-listen, within
// the limit, with what openCerts has read.
func openListeners(ctx context.Context, listen, metrics string, limit *web.ConnLimit, shown *tlsconfig.Server, log *slog.Logger) (*listeners, error) {
	var listening net.ListenConfig
	requests, err := listening.Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, notListening("--listen", err)
	}
	scrapes, err := listenMetrics(ctx, metrics)
	if err != nil {
		_ = requests.Close() // nobody has come in yet
		return nil, err
	}
	l := &listeners{requests, scrapes, shown}
	l.bound(limit)
	l.secure(log)
	return l, nil
}

// bound puts the limit on the listeners, beneath TLS.
func (l *listeners) bound(limit *web.ConnLimit) {
	l.requests = limit.Listener(l.requests, l.shown == nil)
	if l.scrapes != nil {
		l.scrapes = limit.Listener(l.scrapes, l.shown == nil)
	}
}

// secure puts TLS on the listeners, or warns of those that others reach without.
func (l *listeners) secure(log *slog.Logger) {
	for _, listener := range []*net.Listener{&l.requests, &l.scrapes} {
		switch {
		case *listener == nil:
		case l.shown != nil:
			*listener = tls.NewListener(*listener, l.shown.Config())
		case tlsconfig.Exposed((*listener).Addr().String()):
			log.Warn("plain HTTP where other machines may reach it: keys and jobs can be read on the way; give --tls-cert and --tls-key, or put a proxy that ends TLS in front", "address", (*listener).Addr().String())
		}
	}
}

// url is the address for requests, as a client on this machine dials it.
func (l *listeners) url() string { return l.of(l.requests) }

// of is the address of a listener. A certificate that is for localhost, and not
// for 127.0.0.1, decides the name.
func (l *listeners) of(listener net.Listener) string {
	if l.shown == nil {
		return localURL("http://" + listener.Addr().String())
	}
	return l.named(localURL("https://" + listener.Addr().String()))
}

// named is the address with a name that the certificate is for.
func (l *listeners) named(address string) string {
	u, err := url.Parse(address)
	if l.shown == nil || err != nil || !net.ParseIP(u.Hostname()).IsLoopback() {
		return address
	}
	if leaf := l.shown.Leaf(); leaf.VerifyHostname(u.Hostname()) != nil && leaf.VerifyHostname(localhost) == nil {
		u.Host = net.JoinHostPort(localhost, u.Port())
	}
	return u.String()
}

// localhost is a name of this machine.
const localhost = "localhost"

// close closes what was not served. What was is closed already.
func (l *listeners) close() {
	_ = l.requests.Close()
	if l.scrapes != nil {
		_ = l.scrapes.Close()
	}
}

// announceMetrics says where metrics are scraped.
func (l *listeners) announceMetrics(out io.Writer) error {
	if l.scrapes == nil {
		return nil
	}
	_, err := fmt.Fprintf(out, "flightline metrics: %s\n", l.metricsURL())
	return err
}

// metricsURL is what Prometheus scrapes; "" if nothing listens for it.
func (l *listeners) metricsURL() string {
	if l.scrapes == nil {
		return ""
	}
	return l.of(l.scrapes) + "/metrics"
}

// hosts are the names that a listener may be asked by: nil, which is any, if it is
// not on loopback and none are given.
func (c Config) hosts(l net.Listener) web.Hosts {
	if c.Host != "" {
		return strings.Split(strings.ToLower(c.Host), ",")
	}
	if l == nil {
		return nil
	}
	if at, ok := l.Addr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
		return web.Hosts{}
	}
	return nil
}

// certificate reads what dev's listeners show. Its own client, its workers and the
// commands that find it reach it at this machine, so the certificate must be
// for that.
func (c Config) certificate(log *slog.Logger) (*tlsconfig.Server, error) {
	shown, err := openCerts(tlsconfig.Files{Cert: c.TLSCert, Key: c.TLSKey}, log)
	if err != nil || shown == nil {
		return nil, err
	}
	if leaf := shown.Leaf(); leaf.VerifyHostname("127.0.0.1") != nil && leaf.VerifyHostname(localhost) != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("--tls-cert %s: dev is reached at 127.0.0.1 or %s, and the certificate is for neither", c.TLSCert, localhost)}
	}
	return shown, nil
}

// ownGateway refuses drivers whose workers would be sent to our own address, where
// they cannot come in: its name is not the certificate's, or they would have to
// show one.
func (c ServeConfig) ownGateway(roles []string, d *listeners) error {
	starts, err := c.names()
	if err != nil || len(starts) == 0 || c.GatewayURL != "" || d.shown == nil || !slices.Contains(roles, roleAutoscaler) {
		return err
	}
	own, err := url.Parse(d.url())
	if err != nil {
		return err
	}
	switch {
	case d.shown.Leaf().VerifyHostname(own.Hostname()) != nil:
		return &cli.UsageError{Err: fmt.Errorf("--gateway-url: must be an address of a gateway that its certificate is for: the workers that the driver %s starts would dial %s, and the certificate of --tls-cert is not for %s", starts[0], own, own.Hostname())}
	case c.TLSClientCA != "":
		return &cli.UsageError{Err: fmt.Errorf("--gateway-url: must be an address of a gateway that asks for no certificate: the workers that the driver %s starts have none, and --tls-client-ca asks for one at %s", starts[0], own)}
	}
	return nil
}
