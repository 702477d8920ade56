// Package port finds free ports for servers that a test or a test tool starts later.
package port

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
)

// The ports are below those that the system gives to outgoing connections: such a
// connection could take the port of a node that is away.
const lowest, span = 10_000, 22_000

// tried counts the ports that were tried, and first is by chance the one before.
var (
	tried atomic.Uint32
	first = rand.Uint32N(span) //nolint:gosec // chance, no secret
)

// Free returns n addresses on loopback that were free a moment ago. No other call in
// this process gets them: servers that start side by side bind theirs later.
func Free(n int) ([]string, error) {
	var found []string
	for range span {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+(first+tried.Add(1))%span)
		l, err := net.Listen("tcp", address) //nolint:noctx // it returns at once
		if err != nil {
			continue
		}
		_ = l.Close() // it took no connection
		if found = append(found, address); len(found) == n {
			return found, nil
		}
	}
	return nil, errors.New("no free ports")
}
