package web

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"flightline/shared/process"
	"flightline/shared/telemetry"
)

const (
	// defaultMaxConns bounds the open connections of a process that may open many
	// files. Each takes 64 KiB for what it receives.
	defaultMaxConns = 1 << 14
	// refusalLogInterval is the least pause between two log lines about refused
	// connections.
	refusalLogInterval = time.Minute
)

// ConnLimit bounds the open connections of a process's listeners: all of them
// together, and those of one client address. Further ones are answered 503 and
// closed.
type ConnLimit struct {
	max, perAddress int
	log             *slog.Logger
	refusals        *telemetry.LogLimit

	mu   sync.Mutex
	open int
	of   map[netip.Addr]int
}

// NewConnLimit makes a limit of maxConns connections, at most perAddress of them
// from one address. The addresses of one IPv6 network of 64 bits count as one.
//
// A maxConns of 0 means half of the files that the process may open, so that
// the other half is left for NATS, its store and its clients, and at most 16,384. A
// perAddress of 0 means half of maxConns.
func NewConnLimit(maxConns, perAddress int, log *slog.Logger) *ConnLimit {
	if maxConns == 0 {
		maxConns = defaultMaxConns
		if files := process.MaxFiles(); files > 0 {
			maxConns = min(maxConns, files/2)
		}
	}
	perAddress = cmp.Or(perAddress, max(1, maxConns/2))
	return &ConnLimit{
		max: maxConns, perAddress: perAddress, log: log, of: map[netip.Addr]int{},
		refusals: telemetry.NewLogLimit(rate.Every(refusalLogInterval), 1),
	}
}

// Listener returns l with the limit in front. plain says that clients speak HTTP
// without TLS on it, so that a refusal can be written.
func (c *ConnLimit) Listener(l net.Listener, plain bool) net.Listener {
	return &limitedListener{l, c, plain}
}

// acquire counts a connection of the address. It returns false, and counts
// nothing, if the address or the process has its maximum.
func (c *ConnLimit) acquire(address netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open < c.max && c.of[address] < c.perAddress {
		c.open++
		c.of[address]++
		return true
	}
	c.refusals.Warn(context.Background(), c.log, "connections refused: too many are open",
		slog.Int("open", c.open), slog.Int("max_connections", c.max),
		slog.Any("address", address), slog.Int("open_of_address", c.of[address]), slog.Int("max_connections_per_address", c.perAddress))
	return false
}

func (c *ConnLimit) release(address netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.of[address]--; c.of[address] == 0 {
		delete(c.of, address)
	}
}

type limitedListener struct {
	net.Listener
	limit *ConnLimit
	plain bool
}

// Accept implements net.Listener. It passes over connections that are too many.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := accepted.(*net.TCPConn)
		if !ok {
			return accepted, nil
		}
		address := clientOf(tcp.RemoteAddr())
		if l.limit.acquire(address) {
			return &limitedConn{TCPConn: tcp, release: sync.OnceFunc(func() { l.limit.release(address) })}, nil
		}
		if l.plain && tcp.SetWriteDeadline(time.Now().Add(refuseTimeout)) == nil {
			_, _ = io.WriteString(tcp, tooManyConns) // the connection ends in any case
		}
		_ = tcp.Close()
	}
}

// refuseTimeout bounds the write of a refusal, which an empty socket takes at once.
const refuseTimeout = 10 * time.Millisecond

// tooManyConns is the answer to a connection that is refused.
const tooManyConns = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n\r\n" +
	`{"error":"too many connections are open; try again","code":"unavailable"}` + "\n"

// clientOf is what the client of a remote address is counted by: all of an IPv4
// address, the network of an IPv6 one.
func clientOf(addr net.Addr) netip.Addr {
	remote, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	address := remote.AddrPort().Addr().Unmap().WithZone("")
	if address.Is4() {
		return address
	}
	const network = 64 // bits that a client has one of
	prefix, err := address.Prefix(network)
	if err != nil {
		return address
	}
	return prefix.Addr()
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	*net.TCPConn
	release func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.release()
	return c.TCPConn.Close()
}
