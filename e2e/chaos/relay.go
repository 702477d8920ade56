package main

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// relay is a wire that can be cut: a TCP listener that passes on what it gets.
// While it is cut nothing is refused and nothing arrives, as between two
// machines that cannot see each other; once mended it delivers what was on
// its way. Neither end is told.
type relay struct {
	address, upstream string

	listener net.Listener
	stop     context.CancelFunc
	wires    sync.WaitGroup

	mu     sync.Mutex
	mended chan struct{} // closed while the wire is whole
}

// newRelay passes on what arrives at address, which must be free, to upstream,
// until close.
func newRelay(address, upstream string) (*relay, error) {
	ctx, stop := context.WithCancel(context.Background())
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		stop()
		return nil, fmt.Errorf("relay: %w", err)
	}
	whole := make(chan struct{})
	close(whole)
	r := &relay{address: l.Addr().String(), upstream: upstream, listener: l, stop: stop, mended: whole}
	r.wires.Go(func() { r.accept(ctx) })
	return r, nil
}

func (r *relay) close() {
	r.stop()
	_ = r.listener.Close() // once
	r.wires.Wait()
}

// cut lets nothing through until mend.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.mended:
		r.mended = make(chan struct{})
	default: // it is cut
	}
}

func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.mended:
	default:
		close(r.mended)
	}
}

// whole waits until the wire is not cut; false once ctx ends.
func (r *relay) whole(ctx context.Context) bool {
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

func (r *relay) accept(ctx context.Context) {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wires.Go(func() { r.pass(ctx, near) })
	}
}

// pass joins near to upstream until one of them ends.
func (r *relay) pass(ctx context.Context, near net.Conn) {
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
func (r *relay) copy(ctx context.Context, from, to net.Conn) {
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
