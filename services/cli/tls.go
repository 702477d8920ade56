package cli

import (
	"cmp"
	"crypto/tls"

	"flightline/shared/certs"
)

// secured is what the files say, and where they name no authorities, what a dev
// that was found shows itself; nil for the system's authorities.
func secured(files certs.Client, shown string) (*tls.Config, error) {
	files.CA = cmp.Or(files.CA, shown)
	config, err := files.Config()
	if err != nil {
		return nil, &UsageError{err}
	}
	return config, nil
}
