package tlsconfig

import (
	"crypto/tls"
	"net"
)

// Client are the paths of what a client believes and shows. The zero value
// believes the authorities of the system, and shows nothing.
type Client struct {
	// CA is the file of the only authorities that may sign the server's
	// certificate. "" means the system's.
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

// Flags adds the flags of the three files by a function like StringVar of pflag.
// Those that are not given are what FLIGHTLINE_CA, FLIGHTLINE_CLIENT_CERT and
// FLIGHTLINE_CLIENT_KEY of the environment say.
func (c *Client) Flags(add func(to *string, name, value, usage string), environment map[string]string) {
	add(&c.CA, "ca", environment["FLIGHTLINE_CA"], "`file` of CA certificates, as PEM, that verify the server, instead of the system's [FLIGHTLINE_CA]")
	add(&c.Cert, "client-cert", environment["FLIGHTLINE_CLIENT_CERT"], "`file` of the certificate for a server that asks for one [FLIGHTLINE_CLIENT_CERT]")
	add(&c.Key, "client-key", environment["FLIGHTLINE_CLIENT_KEY"], "`file` of its key [FLIGHTLINE_CLIENT_KEY]")
}

// Exposed reports whether other machines may reach what listens at the address,
// host and port. It is false for what is no address.
func Exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}
