package dev

import (
	"crypto/x509"
	"fmt"
	"log/slog"

	"flightline/services/cli"
	"flightline/shared/certs"
)

// show reads what dev's listeners show. Its own client, its workers and the
// commands that find it reach it at this machine, so the certificate must be
// for that.
func (c Config) show(log *slog.Logger) (*certs.Server, error) {
	shown, err := show(certs.Files{Cert: c.TLSCert, Key: c.TLSKey}, log)
	if err != nil || shown == nil {
		return nil, err
	}
	if !forThisMachine(shown.Leaf()) {
		return nil, &cli.UsageError{Err: fmt.Errorf("--tls-cert %s: dev is reached at 127.0.0.1 or %s, and the certificate is for neither", c.TLSCert, localhost)}
	}
	return shown, nil
}

func forThisMachine(leaf *x509.Certificate) bool {
	return leaf.VerifyHostname("127.0.0.1") == nil || leaf.VerifyHostname(localhost) == nil
}
