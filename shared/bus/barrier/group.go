// Package barrier makes many writers share one fsync. A write to a single
// JetStream server is acknowledged once the operating system has it; who must
// not lose it in a power loss waits at a barrier, where all who wait at the
// same time are let through by the same fsync.
//
// Group is what they share it by. The fsync itself happens beside the server, in
// shared/bus/embedded/files.go; Serve offers it to other processes and Remote asks for
// it. Who has to wait calls bus.Client.WaitDurable.
package barrier

import (
	"context"
	"sync"
)

// Func returns once everything that had been written to the stream before the
// call is on the disk.
type Func func(ctx context.Context, stream string) error

// Group runs a piece of work for all who ask at the same time. One run is in
// progress at a time; a caller that comes during a run shares the next one, since
// the present one may have begun too early for it. It starts no goroutine:
// one of those who wait does the work.
type Group struct {
	turn chan struct{} // holds a token while a run is in progress

	mu   sync.Mutex
	next *run // the one that new callers join; nil until there is one
}

// Groups has a Group for each key. The zero value is ready for use.
type Groups struct {
	mu     sync.Mutex
	groups map[string]*Group
}

// Of returns the key's Group.
func (g *Groups) Of(key string) *Group {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := g.groups[key]
	if group == nil {
		if g.groups == nil {
			g.groups = map[string]*Group{}
		}
		group = NewGroup()
		g.groups[key] = group
	}
	return group
}

type run struct {
	done chan struct{} // closed at the end, which makes the others valid
	err  error
	left bool // its caller's context ended it: the others need another run
}

// NewGroup returns a Group that nobody waits at.
func NewGroup() *Group { return &Group{turn: make(chan struct{}, 1)} }

// Do returns what a run of work returned that began after the call, its own
// or that of another caller. While it waits for another's it returns ctx's
// error when ctx ends; in its own run that is up to work, and a run that
// failed after its ctx had ended counts only for the one who made it.
func (g *Group) Do(ctx context.Context, work func(context.Context) error) error {
	for {
		r := g.join()
		select {
		case <-r.done:
		case g.turn <- struct{}{}:
			if g.lead(ctx, r, work) {
				return r.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if !r.left {
			return r.err
		}
	}
}

func (g *Group) join() *run {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		g.next = &run{done: make(chan struct{})}
	}
	return g.next
}

// lead does r's work and gives the turn back. It reports false if r is done
// already, by the caller that had the turn before.
func (g *Group) lead(ctx context.Context, r *run, work func(context.Context) error) bool {
	defer func() { <-g.turn }()
	g.mu.Lock()
	if g.next != r {
		g.mu.Unlock()
		return false
	}
	g.next = nil
	g.mu.Unlock()
	defer close(r.done)
	r.left = true // in case work panics
	err := work(ctx)
	r.err, r.left = err, err != nil && ctx.Err() != nil
	return true
}
