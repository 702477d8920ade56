// Package port finds free ports for servers that a test or a test tool starts later.
package port

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// The ports are below those that the system gives to outgoing connections: such a
// connection could take the port of a node that is away.
const lowest, span = 10_000, 22_000

// tried counts the ports that were tried, and first is by chance the one before.
var (
	tried atomic.Uint32
	first = rand.Uint32N(span) //nolint:gosec // chance, no secret
)

// reserved are sockets for datagrams, which no server here takes, on the ports that were
// returned: until this process ends, Free returns them in no other one.
var (
	mu       sync.Mutex
	reserved []net.PacketConn
)

// Free returns n addresses on loopback that were free a moment ago. No other call gets
// them, here or in another process: servers that start side by side bind theirs later.
func Free(n int) ([]string, error) {
	var found []string
	for range span {
		address := addressOf(first + tried.Add(1))
		if !reserve(address) || answers(address) {
			continue
		}
		if found = append(found, address); len(found) == n {
			return found, nil
		}
	}
	return nil, errors.New("no free ports")
}

func addressOf(n uint32) string { return fmt.Sprintf("127.0.0.1:%d", lowest+n%span) }

// reserve reports whether no process has the address reserved, and does so.
func reserve(address string) bool {
	socket, err := net.ListenPacket("udp", address) //nolint:noctx // it returns at once
	if err != nil {
		return false
	}
	mu.Lock()
	defer mu.Unlock()
	reserved = append(reserved, socket)
	return true
}

// answers reports whether somebody listens at the address. To listen there oneself is no way
// to know: a child that is forked meanwhile holds the socket until it has become its program.
func answers(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second) //nolint:noctx // it returns at once
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
