//go:build !unix

package web

import (
	"net"
)

// gone cannot look at a socket here, so a client that left is noticed when its
// answer is written.
func gone(net.Conn) bool { return false }

// passes reports whether an error of Accept does not last: none is known here.
func passes(error) bool { return false }
