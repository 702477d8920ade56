package web

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// shakeWithin is how long a client may take for the handshake of TLS.
const shakeWithin = 10 * time.Second

// listening accepts connections that tell fasthttp of each end.
type listening struct{ net.Listener }

// acceptRetryDelay is the pause while the system has no file handle left for a
// connection.
const acceptRetryDelay = 50 * time.Millisecond

// Accept implements net.Listener. While there is no file handle left it waits:
// fasthttp would take that for the end of the listener.
func (l listening) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	for outOfFiles(err) {
		<-time.After(acceptRetryDelay)
		conn, err = l.Listener.Accept()
	}
	if err != nil {
		return nil, err
	}
	if secured, ok := conn.(*tls.Conn); ok {
		return secure{ending{conn}, secured}, nil
	}
	return ending{conn}, nil
}

// secure is one over TLS: fasthttp asks it to shake hands.
type secure struct {
	ending
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

// ending is a connection whose end is never io.EOF. fasthttp takes that for a
// client that is done, also in the middle of a chunked body, and says nothing;
// any other error reaches its ErrorHandler, which gives the body's room back.
type ending struct{ net.Conn }

// Read implements net.Conn.
func (c ending) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// CloseWrite ends what is sent, if the connection can do that.
func (c ending) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// NetConn returns the connection itself.
func (c ending) NetConn() net.Conn { return c.Conn }

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
