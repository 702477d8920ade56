package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"strings"
)

// Client are the paths of what a client believes and shows. The zero value
// believes the authorities of the system, and shows nothing.
type Client struct {
	// CA are the only authorities that may vouch for the server. "" means the
	// system's.
	CA string
	// Cert and Key are what is shown to a server that asks, both or neither.
	Cert, Key string
}

// Config is for a client, nil for the zero value. The only error is ErrFiles.
func (c Client) Config() (*tls.Config, error) {
	if c == (Client{}) {
		return nil, nil //nolint:nilnil // the default is no error
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if c.CA != "" {
		if config.RootCAs, err = pool(c.CA); err != nil {
			return nil, err
		}
	}
	if c.Cert == "" && c.Key == "" {
		return config, nil
	}
	pair, err := keyPair(c.Cert, c.Key)
	if err != nil {
		return nil, err
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// Own makes a client believe the very server that shows the certificate in the
// file, and no other, whatever the address it is reached at: for a process that
// asks one on its own machine.
func Own(config *tls.Config, cert string) (*tls.Config, error) {
	leaf, err := leafOf(cert)
	if err != nil {
		return nil, err
	}
	own := &tls.Config{MinVersion: tls.VersionTLS12}
	if config != nil {
		own = config.Clone()
	}
	own.RootCAs = x509.NewCertPool()
	own.RootCAs.AddCert(leaf)
	own.ServerName = nameOf(leaf)
	return own, nil
}

func leafOf(path string) (*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: certificate: %w", ErrFiles, err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%w: %s holds no certificate in PEM", ErrFiles, path)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: certificate %s: %w", ErrFiles, path, err)
	}
	return leaf, nil
}

// nameOf is a name that the certificate is for, "" if it has none.
func nameOf(leaf *x509.Certificate) string {
	if len(leaf.DNSNames) > 0 {
		return strings.Replace(leaf.DNSNames[0], "*", "own", 1)
	}
	if len(leaf.IPAddresses) > 0 {
		return leaf.IPAddresses[0].String()
	}
	return ""
}

// Exposed reports whether an address that is listened at, host and port, can be
// reached from other machines.
func Exposed(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}
