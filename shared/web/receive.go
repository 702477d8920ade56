package web

import (
	"sync"
	"time"
)

// receiveTimeout is how long a request that has begun may take to arrive once the
// server stops. It is well below stopWithin: a client that sends slowly must not
// keep the process from an orderly end.
const receiveTimeout = 3 * time.Second

// connections are the open connections of a listener.
type connections struct {
	mu    sync.Mutex
	open  map[*conn]struct{}
	until time.Time // zero before the stop
}

func (s *connections) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = struct{}{}
	if !s.until.IsZero() {
		c.receiveUntil(s.until)
	}
}

func (s *connections) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// receiveUntil bounds what all connections receive, the later ones too.
func (s *connections) receiveUntil(end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = end
	for c := range s.open {
		c.receiveUntil(end)
	}
}

// receiving is the deadline of reading, and its bound.
type receiving struct {
	mu    sync.Mutex
	bound time.Time // zero for none
}

// receiveUntil bounds the deadlines of reading, and sets one. An answer may still
// be written.
func (c *conn) receiveUntil(end time.Time) {
	c.receiving.mu.Lock()
	defer c.receiving.mu.Unlock()
	c.receiving.bound = end
	_ = c.Conn.SetReadDeadline(end) // it is closed
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(end time.Time) error {
	c.receiving.mu.Lock()
	defer c.receiving.mu.Unlock()
	if bound := c.receiving.bound; !bound.IsZero() && (end.IsZero() || bound.Before(end)) {
		end = bound
	}
	return c.Conn.SetReadDeadline(end)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.remove(c)
	return c.Conn.Close()
}
