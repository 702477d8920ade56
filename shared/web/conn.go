package web

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// shakeWithin is how long a client may take for the handshake of TLS.
const shakeWithin = 10 * time.Second

// listening accepts connections that report each end to fasthttp.
type listening struct {
	net.Listener
	connections *connections
}

// acceptRetryDelay is the pause while the system has no file handle or memory
// left for a connection.
const acceptRetryDelay = 50 * time.Millisecond

// Accept implements net.Listener. While the system has none left it waits:
// fasthttp would take that for the end of the listener.
func (l listening) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	for passes(err) {
		<-time.After(acceptRetryDelay)
		accepted, err = l.Listener.Accept()
	}
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, of: l.connections}
	l.connections.add(c)
	if secured, ok := accepted.(*tls.Conn); ok {
		return secure{c, secured}, nil
	}
	return c, nil
}

// secure is one over TLS: fasthttp asks it to shake hands.
type secure struct {
	*conn
	tls *tls.Conn
}

// Handshake does so within 10 s, fewer than a request may take. A client that
// speaks plain HTTP gets an answer that says so.
func (c secure) Handshake() error {
	ctx, cancel := context.WithTimeout(context.Background(), shakeWithin)
	defer cancel()
	err := c.tls.HandshakeContext(ctx)
	plain, ok := errors.AsType[tls.RecordHeaderError](err)
	if ok && plain.Conn != nil && isHTTP(plain.RecordHeader) {
		_, _ = io.WriteString(plain.Conn, needsTLS) // the answer says why; the connection ends
	}
	return err
}

// ConnectionState is for fasthttp: no protocol was agreed on.
func (c secure) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// needsTLS is the answer to plain HTTP where TLS is spoken.
const needsTLS = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" +
	`{"error":"this address speaks https","code":"invalid_request"}` + "\n"

// isHTTP reports whether what came instead of TLS begins like a request.
func isHTTP(begin [5]byte) bool {
	switch string(begin[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "PATCH", "DELET":
		return true
	}
	return false
}

// conn is an accepted connection. One goroutine of fasthttp reads and writes
// it, and reports its state.
//
// Its end is never io.EOF. fasthttp takes that for a client that is done, also
// in the middle of a chunked body, and reports nothing; any other error reaches
// its ErrorHandler.
type conn struct {
	net.Conn
	of        *connections
	receiving receiving
	frames    framing
	active    bool // a request has begun, and its answer is not written yet

	unread    bool // nothing was received since the last answer
	pipelined bool // the request was received together with the one before, whose answer fasthttp may still keep

	writeUntil time.Time // the deadline of writing
	written    []func()  // called when the answer was written
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.unread = false
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if good := c.frames.check(p[:n]); good < n {
		return good, errFraming
	}
	return n, err
}

// setState is fasthttp's ConnState.
func (c *conn) setState(state fasthttp.ConnState) {
	switch state {
	case fasthttp.StateNew, fasthttp.StateIdle:
		c.active, c.unread = false, state == fasthttp.StateIdle
		c.answered()
	case fasthttp.StateActive:
		c.active, c.pipelined = true, c.unread
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		c.answered()
	}
}

// afterAnswer has do called when the answer was written, or will not be.
func (c *conn) afterAnswer(do func()) { c.written = append(c.written, do) }

func (c *conn) answered() {
	for _, do := range c.written {
		do()
	}
	c.written = nil
}

// CloseWrite ends what is sent, if the connection can do that.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// NetConn returns the connection itself.
func (c *conn) NetConn() net.Conn { return c.Conn }

// connOf is the connection of ours that fasthttp has, nil for one of a test.
func connOf(of net.Conn) *conn {
	switch c := of.(type) {
	case *conn:
		return c
	case secure:
		return c.conn
	}
	return nil
}

// inner is the connection beneath wrappers, ours and that of TLS.
func inner(conn net.Conn) net.Conn {
	for {
		wrapped, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = wrapped.NetConn()
	}
}

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

const (
	// writeTimeout is how long a client may take nothing of a small answer, or of a
	// piece of a streamed one.
	writeTimeout = 30 * time.Second
	// writeDeadlineSlack is by how much the deadline of a small write may be
	// earlier, so that it is not set for each.
	writeDeadlineSlack = 5 * time.Second
)

// Write implements net.Conn. The client must take a large answer at the least
// rate, and a small one within 30 s.
func (c *conn) Write(p []byte) (int, error) {
	now := time.Now()
	if len(p) <= SmallBody {
		if c.writeUntil.Sub(now) < writeTimeout-writeDeadlineSlack {
			if err := c.setWriteDeadline(now.Add(writeTimeout)); err != nil {
				return 0, err
			}
		}
		return c.Conn.Write(p)
	}
	for written := 0; ; {
		if err := c.setWriteDeadline(time.Now().Add(paceTimeout)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:min(len(p), written+pacePart)])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

func (c *conn) setWriteDeadline(deadline time.Time) error {
	c.writeUntil = deadline
	return c.SetWriteDeadline(deadline)
}

// A client that sends a body, or takes an answer, of more than 64 KiB has
// paceTimeout for each pacePart of it: 16 KB/s. What the system buffers earns no
// time for later.
const (
	paceTimeout = 10 * time.Second
	pacePart    = 160 << 10 // bytes
)

// pace is a transfer that has to keep up the least rate.
type pace struct {
	deadline time.Time // of the part under way
	left     int       // of that part, in bytes
}

func newPace(now time.Time) pace { return pace{now.Add(paceTimeout), pacePart} }

// advance notes that so many bytes have come, or gone.
func (p *pace) advance(bytes int, now time.Time) {
	if p.left -= bytes; p.left <= 0 {
		*p = newPace(now)
	}
}
