package network

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreeAddresses returns n addresses on loopback that were free a moment ago.
// Their ports are below those that the system gives to outgoing connections:
// such a connection could take the port of a node that is away.
func FreeAddresses(n int) ([]string, error) {
	const lowest, span, tries = 20_000, 12_000, 1000
	var found []string
	for range tries {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(span)) //nolint:gosec // chance, no secret
		l, err := net.Listen("tcp", address)                           //nolint:noctx // it returns at once
		if err != nil {
			continue
		}
		defer l.Close() //nolint:errcheck // it took no connection
		if found = append(found, address); len(found) == n {
			return found, nil
		}
	}
	return nil, errors.New("no free ports")
}
