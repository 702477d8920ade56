package dev

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/url"
	"slices"

	"flightline/services/cli"
	"flightline/shared/certs"
)

// certificate reads what dev's listeners show. Its own client, its workers and the
// commands that find it reach it at this machine, so the certificate must be
// for that.
func (c Config) certificate(log *slog.Logger) (*certs.Server, error) {
	shown, err := openCerts(certs.Files{Cert: c.TLSCert, Key: c.TLSKey}, log)
	if err != nil || shown == nil {
		return nil, err
	}
	if !forThisMachine(shown.Leaf()) {
		return nil, &cli.UsageError{Err: fmt.Errorf("--tls-cert %s: dev is reached at 127.0.0.1 or %s, and the certificate is for neither", c.TLSCert, localhost)}
	}
	return shown, nil
}

// ownGateway refuses drivers whose workers would be sent to our own address, where
// they cannot come in: its name is not the certificate's, or they would have to
// show one.
func (c ServeConfig) ownGateway(roles []string, d *doors) error {
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

func forThisMachine(leaf *x509.Certificate) bool {
	return leaf.VerifyHostname("127.0.0.1") == nil || leaf.VerifyHostname(localhost) == nil
}
