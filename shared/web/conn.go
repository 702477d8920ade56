package web

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
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
// speaks plain HTTP is told what it did wrong.
func (c secure) Handshake() error {
	ctx, cancel := context.WithTimeout(context.Background(), shakeWithin)
	defer cancel()
	err := c.tls.HandshakeContext(ctx)
	plain, ok := errors.AsType[tls.RecordHeaderError](err)
	if ok && plain.Conn != nil && isHTTP(plain.RecordHeader) {
		_, _ = io.WriteString(plain.Conn, needsTLS) // what it is for is told; the connection ends
	}
	return err
}

// ConnectionState tells fasthttp which protocol was agreed on: none.
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
	pipelined bool // the request was received together with the one before

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

// silent reports whether no request has begun: the client waits for no answer.
func (c *conn) silent() bool { return !c.active }

// answersWait reports whether fasthttp may have answers to earlier requests that it
// has not written yet: it keeps them while more requests are there.
func (c *conn) answersWait() bool { return c.pipelined }

// CloseWrite ends what is sent, if the connection can do that.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// NetConn returns the connection itself.
func (c *conn) NetConn() net.Conn { return c.Conn }

// setState passes the state of a connection of ours on to it.
func setState(of net.Conn, state fasthttp.ConnState) {
	if c, ok := of.(interface{ setState(fasthttp.ConnState) }); ok {
		c.setState(state)
	}
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
