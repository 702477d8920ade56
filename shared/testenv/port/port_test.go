package port

import (
	"net"
	"testing"
)

// Scenarios that run side by side bind their addresses some time after they got them.
func TestNoAddressIsGivenTwice(t *testing.T) {
	given := map[string]bool{}
	for range 200 {
		addresses, err := Free(20)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addresses {
			if given[a] {
				t.Fatalf("got %s again", a)
			}
			given[a] = true
		}
	}
}

// A program that looks for ports beside this one, and begins at the same one by chance.
func TestAnAddressOfAnotherProcessIsNotGiven(t *testing.T) {
	const next = 3
	var others []string
	for i := range uint32(next) {
		address := addressOf(first + tried.Load() + 1 + i)
		socket, err := net.ListenPacket("udp", address)
		if err != nil {
			continue // somebody else's
		}
		t.Cleanup(func() { _ = socket.Close() })
		others = append(others, address)
	}
	got, err := Free(next)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range got {
		for _, other := range others {
			if address == other {
				t.Errorf("got %s, which is reserved", address)
			}
		}
	}
}

func TestAnAddressWhereSomebodyListensIsNotGiven(t *testing.T) {
	var taken string
	var l net.Listener
	for l == nil { // somebody else may have the next port
		var err error
		taken = addressOf(first + tried.Load() + 1)
		if l, err = net.Listen("tcp", taken); err != nil {
			tried.Add(1)
		}
	}
	t.Cleanup(func() { _ = l.Close() })
	if got, err := Free(1); err != nil || got[0] == taken {
		t.Errorf("got %v, %v, want another one than %s", got, err, taken)
	}
}
