package dev

import (
	"fmt"
	"net"
	"strings"

	"flightline/services/cli"
	"flightline/shared/web"
)

// hostsOf returns what is wrong with the setting.
func hostsOf(setting string) error {
	for name := range strings.SplitSeq(setting, ",") {
		if setting != "" && (name == "" || strings.ContainsAny(name, ":/ *")) {
			return &cli.UsageError{Err: fmt.Errorf("--host %q: must be names or IPv4 addresses without a port, with commas between them", setting)}
		}
	}
	return nil
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
