package bus

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// writeTimeout is how long a server may take nothing of what is written to it, as long
	// as it may leave pings unanswered: nats.go holds its lock for a write, so that every
	// call of the connection waits too, also the look for unanswered pings.
	writeTimeout = pingInterval * (maxPings + 1)
	// writePart is how much it must take in that time, or all that is left.
	writePart = 64 << 10
)

// dialer makes connections over the network: to the addresses of a host in random order,
// all within dialTimeout.
type dialer struct{}

func (dialer) Dial(network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	hosts, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] }) //nolint:gosec // no secret
	each := net.Dialer{Timeout: dialTimeout / time.Duration(len(hosts))}
	var c net.Conn
	for _, host := range hosts {
		if c, err = each.DialContext(ctx, network, net.JoinHostPort(host, port)); err == nil {
			return conn{c}, nil
		}
	}
	return nil, err
}

// inProcess makes connections to a server in this process. They have no buffer: while the
// server waits for its disk it may read nothing.
type inProcess struct{ nats.InProcessConnProvider }

func (p inProcess) InProcessConn() (net.Conn, error) {
	c, err := p.InProcessConnProvider.InProcessConn()
	return conn{c}, err
}

// conn is a connection that ends with a write of which the server takes too little: nats.go
// drops what it could not write, subscriptions too, and goes on.
type conn struct{ net.Conn }

func (c conn) Write(p []byte) (int, error) {
	for written := 0; ; {
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout)) // it is closed: so is what follows
		n, err := c.Conn.Write(p[written:min(len(p), written+writePart)])
		written += n
		if err != nil {
			_ = c.Close()
		}
		if err != nil || written == len(p) {
			return written, err
		}
	}
}
