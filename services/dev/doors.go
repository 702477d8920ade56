package dev

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"

	"flightline/services/cli"
	"flightline/shared/certs"
	"flightline/shared/web"
)

// doors are where a process is reached.
type doors struct {
	requests net.Listener
	scrapes  net.Listener  // nil for nowhere
	shown    *certs.Server // to all who come; nil for plain HTTP
}

// openCerts reads what listeners show, nil for plain HTTP.
func openCerts(files certs.Files, log *slog.Logger) (*certs.Server, error) {
	shown, err := certs.Open(files, log)
	if err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("--tls-cert, --tls-key: %w", err)}
	}
	return shown, nil
}

// openDoors listens at the addresses of --listen and --metrics-listen, within
// the limit, with what openCerts has read.
func openDoors(ctx context.Context, listen, metrics string, limit *web.ConnLimit, shown *certs.Server, log *slog.Logger) (*doors, error) {
	var listening net.ListenConfig
	requests, err := listening.Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	scrapes, err := listenMetrics(ctx, metrics)
	if err != nil {
		_ = requests.Close() // nobody has come in yet
		return nil, err
	}
	d := &doors{requests, scrapes, shown}
	d.bound(limit)
	d.secure(log)
	return d, nil
}

// bound puts the limit on the listeners, beneath TLS.
func (d *doors) bound(limit *web.ConnLimit) {
	d.requests = limit.Listener(d.requests, d.shown == nil)
	if d.scrapes != nil {
		d.scrapes = limit.Listener(d.scrapes, d.shown == nil)
	}
}

// secure puts TLS on the listeners, or warns of those that others reach without.
func (d *doors) secure(log *slog.Logger) {
	for _, l := range []*net.Listener{&d.requests, &d.scrapes} {
		switch {
		case *l == nil:
		case d.shown != nil:
			*l = tls.NewListener(*l, d.shown.Config())
		case certs.Exposed((*l).Addr().String()):
			log.Warn("plain HTTP where other machines may reach it: keys and jobs can be read on the way; give --tls-cert and --tls-key, or put a proxy that ends TLS in front", "address", (*l).Addr().String())
		}
	}
}

// url is the address for requests, as a client on this machine dials it.
func (d *doors) url() string { return d.of(d.requests) }

// of is the address of a listener. A certificate that is for localhost, and not
// for 127.0.0.1, decides the name.
func (d *doors) of(l net.Listener) string {
	if d.shown == nil {
		return nearby("http://" + l.Addr().String())
	}
	return d.named(nearby("https://" + l.Addr().String()))
}

// named is the address with a name that the certificate is for.
func (d *doors) named(address string) string {
	u, err := url.Parse(address)
	if d.shown == nil || err != nil || !net.ParseIP(u.Hostname()).IsLoopback() {
		return address
	}
	if leaf := d.shown.Leaf(); leaf.VerifyHostname(u.Hostname()) != nil && leaf.VerifyHostname(localhost) == nil {
		u.Host = net.JoinHostPort(localhost, u.Port())
	}
	return u.String()
}

// localhost is a name of this machine.
const localhost = "localhost"

// close closes what was not served. What was is closed already.
func (d *doors) close() {
	_ = d.requests.Close()
	if d.scrapes != nil {
		_ = d.scrapes.Close()
	}
}

// tell says where metrics are scraped.
func (d *doors) tell(out io.Writer) error {
	if d.scrapes == nil {
		return nil
	}
	_, err := fmt.Fprintf(out, "flightline metrics: %s/metrics\n", d.of(d.scrapes))
	return err
}
