package cli

import (
	"cmp"
	"crypto/tls"

	"github.com/spf13/pflag"

	"flightline/shared/certs"
)

// tlsFlags are paths of what a client believes and shows.
type tlsFlags struct{ ca, cert, key string }

func (f *tlsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.ca, "ca", "", "`file` of the authorities that may vouch for the server, as PEM; else FLIGHTLINE_CA, else the system's")
	flags.StringVar(&f.cert, "client-cert", "", "`file` of the certificate that is shown to a server that asks; else FLIGHTLINE_CLIENT_CERT")
	flags.StringVar(&f.key, "client-key", "", "`file` of its key; else FLIGHTLINE_CLIENT_KEY")
}

// config is what the flags say, then the environment, then what a dev that was
// found shows itself; nil for the system's authorities.
func (f *tlsFlags) config(env map[string]string, shown string) (*tls.Config, error) {
	config, err := certs.Client{
		CA:   cmp.Or(f.ca, env["FLIGHTLINE_CA"], shown),
		Cert: cmp.Or(f.cert, env["FLIGHTLINE_CLIENT_CERT"]),
		Key:  cmp.Or(f.key, env["FLIGHTLINE_CLIENT_KEY"]),
	}.Config()
	if err != nil {
		return nil, &UsageError{err}
	}
	return config, nil
}
