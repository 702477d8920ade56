package web

import (
	"testing"
	"unsafe"
)

// A claim is released when the answer was written. The memory of the request, where its key
// is, belongs to another request by then.
func TestAClaimIsReleasedForItsOwnKey(t *testing.T) {
	t.Parallel()
	m := newMemory(SmallBody, SmallBody)
	memory := []byte("key-a")
	claims := []*claim{m.claim("key-a"), m.claim(unsafe.String(&memory[0], len(memory)))}
	copy(memory, "key-b")
	other := m.claim("key-b")
	for _, c := range claims {
		c.release()
	}
	if len(m.keys) != 1 || m.keys["key-b"] != other.of {
		t.Errorf("got the shares %v, want that of key-b, which has a claim", m.keys)
	}
	if other.release(); len(m.keys) != 0 {
		t.Errorf("got the shares %v without a claim, want none", m.keys)
	}
}
