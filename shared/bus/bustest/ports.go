package bustest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreePorts are n addresses on loopback that were free a moment ago, below those
// that the system gives to connections of its own: one of these would be in
// the way of a server that starts later, or comes back.
func FreePorts(t testing.TB, n int) []string {
	t.Helper()
	const lowest, span, tries = 10_000, 22_000, 1000
	var found []string
	for range tries {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(span)) //nolint:gosec // chance, no secret
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			continue
		}
		defer l.Close() //nolint:errcheck // it took no connection
		if found = append(found, address); len(found) == n {
			return found
		}
	}
	t.Fatal("no free ports")
	return nil
}
