package web

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"

	"github.com/gofiber/fiber/v2"
)

// errCutOff ends a streamed answer before its end, so that the client sees that
// something is missing. fasthttp passes over a broken pipe in silence.
var errCutOff = fmt.Errorf("web: answer cut off: %w", syscall.EPIPE)

// Stream answers with the pieces that next returns, of unknown number: each is
// asked for, and must stay as it is, until the one before was written to the
// socket and the client is still there. io.EOF of next ends the answer, any
// other error, or a panic, cuts it off. All this happens after the handler has
// returned, so neither next nor end may use c. end is called last, once,
// whatever happened.
func Stream(c *fiber.Ctx, next func() ([]byte, error), end func()) {
	s := &stream{conn: c.Context().Conn(), next: next, end: sync.OnceFunc(end), id: RequestID(c)}
	if state := stateOf(c); state != nil {
		s.log = state.log
	}
	c.Context().Response.SetBodyStream(s, -1)
}

// stream is a body that fasthttp reads from and writes, a few KB at a time,
// each flushed before it reads on.
type stream struct {
	conn  net.Conn
	next  func() ([]byte, error)
	end   func()
	begun bool
	rest  []byte // of the piece that is being written
	id    string // of the request
	log   *slog.Logger
}

// piece asks for the next one. A panic there would end the process: no handler
// of the app is beneath us any more.
func (s *stream) piece() (piece []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
			if s.log != nil {
				s.log.Error("answer cut off", "request_id", s.id, "err", err)
			}
		}
	}()
	return s.next()
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.begun && gone(s.conn) {
			return 0, errCutOff
		}
		s.begun = true
		piece, err := s.piece()
		if err == io.EOF { //nolint:errorlint // the very value, as of an io.Reader
			return 0, io.EOF
		}
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errCutOff, err)
		}
		s.rest = piece
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.end()
	return nil
}
