package web

import (
	"errors"
	"io"
	"net"
)

// listening accepts connections that tell fasthttp of each end.
type listening struct{ net.Listener }

// Accept implements net.Listener.
func (l listening) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return ending{conn}, nil
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
