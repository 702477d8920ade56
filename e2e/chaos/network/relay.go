// Package network is the network between the processes of a chaos test: TCP
// relays on loopback that can be cut.
package network

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Relay is a TCP listener that forwards to another address and can be cut.
// While it is cut, connections stay open and nothing arrives, as between two
// machines that cannot see each other. After Mend it delivers what was sent
// meanwhile.
type Relay struct {
	// Address is where the relay listens, host:port.
	Address  string
	upstream string

	listener net.Listener
	stop     context.CancelFunc
	wires    sync.WaitGroup

	mu     sync.Mutex
	mended chan struct{} // closed while the wire is whole
}

// NewRelay forwards what arrives at address, which must be free, to upstream,
// until Close.
func NewRelay(address, upstream string) (*Relay, error) {
	ctx, stop := context.WithCancel(context.Background())
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		stop()
		return nil, fmt.Errorf("relay: %w", err)
	}
	whole := make(chan struct{})
	close(whole)
	r := &Relay{Address: l.Addr().String(), upstream: upstream, listener: l, stop: stop, mended: whole}
	r.wires.Go(func() { r.accept(ctx) })
	return r, nil
}

// Close ends the listener and all its connections.
func (r *Relay) Close() {
	r.stop()
	_ = r.listener.Close() // once
	r.wires.Wait()
}

// Cut lets nothing through until Mend. A second Cut does nothing.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.mended:
		r.mended = make(chan struct{})
	default: // it is cut
	}
}

// Mend ends a Cut. Without one it does nothing.
func (r *Relay) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.mended:
	default:
		close(r.mended)
	}
}

// whole waits until the wire is not cut; false once ctx ends.
func (r *Relay) whole(ctx context.Context) bool {
	r.mu.Lock()
	mended := r.mended
	r.mu.Unlock()
	select {
	case <-mended:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *Relay) accept(ctx context.Context) {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wires.Go(func() { r.pass(ctx, near) })
	}
}

// pass joins near to upstream until one of them ends.
func (r *Relay) pass(ctx context.Context, near net.Conn) {
	defer near.Close() //nolint:errcheck // it ends anyway
	if !r.whole(ctx) {
		return
	}
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.upstream)
	if err != nil {
		return
	}
	defer far.Close() //nolint:errcheck // it ends anyway
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(ctx, func() {
		_ = near.Close()
		_ = far.Close()
	})()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			defer end()
			r.copy(ctx, way[0], way[1])
		})
	}
	both.Wait()
}

// copy delivers what it reads, unless the wire was cut meanwhile: then later.
func (r *Relay) copy(ctx context.Context, from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if !r.whole(ctx) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
