// Package wakeup wakes a goroutine that waits for something to do.
package wakeup

// Signal is a channel with room for one value: what is sent while its receiver works is
// there when it waits again, and however often something was sent, the receiver looks once.
// New makes one; it is received from as from any channel.
type Signal chan struct{}

// New returns a signal that nothing was sent to.
func New() Signal { return make(Signal, 1) }

// Send wakes the receiver, at once or when it next waits. It does not block.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Clear takes back what was sent and is not received yet.
func (s Signal) Clear() {
	select {
	case <-s:
	default:
	}
}
