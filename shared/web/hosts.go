package web

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// containerHost is the name by which containers reach this machine. Nobody can
// point it elsewhere: its top-level domain is reserved.
const containerHost = "host.docker.internal"

// Hosts are the names by which a server may be asked, besides those of loopback: a
// page of a site whose name was pointed at 127.0.0.1 must not reach it (DNS
// rebinding). Nil means any name.
type Hosts []string

// Allow reports whether the value of a Host header is a loopback address, localhost,
// the name for containers, or one of the names. The port does not count. No browser
// sends an empty one, which HTTP/1.0 allows.
func (h Hosts) Allow(host string) bool {
	if h == nil || host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback() || slices.Contains(h, host)
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || host == containerHost || slices.Contains(h, host)
}

// check refuses a request by another name.
func (h Hosts) check(c *fiber.Ctx) error {
	if host := string(c.Request().Host()); !h.Allow(host) {
		return Errorf(InvalidRequest, "host %.200q is not served here: use a loopback address, or allow the name with --host", host)
	}
	return c.Next()
}
