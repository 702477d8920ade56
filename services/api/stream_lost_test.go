package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"flightline/shared/chunks"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/web"
)

// dialStream sends a request on a connection of its own.
func (s *env) dialStream(path string) (*net.TCPConn, *bufio.Reader) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.base, "http://"), "/v2"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(smallBuffer); err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET /v2%s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n", path, adminKey); err != nil {
		s.t.Fatal(err)
	}
	return conn.(*net.TCPConn), bufio.NewReader(conn)
}

// smallBuffer is what fits between two sides that do not read.
const smallBuffer = 8 << 10

// narrow accepts connections that hold little on their way.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn, conn.(*net.TCPConn).SetWriteBuffer(smallBuffer)
}

// beside is the same service on another listener, which stop ends.
func (s *env) beside(wrap func(net.Listener) net.Listener) (other *env, stop context.CancelFunc, stopped <-chan error) {
	s.t.Helper()
	app := web.New(web.Config{})
	s.service.Routes(app)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	end := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { end <- web.Serve(ctx, app, wrap(listener)) })
	s.t.Cleanup(func() { stop(); wg.Wait() })
	copied := *s
	copied.base = "http://" + listener.Addr().String() + "/v2"
	return &copied, stop, end
}

func TestAClientThatLeavesWhileItWaitsMissesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	before := s.conn.NumSubscriptions()
	path := "/ep/stream/" + s.submit()
	lease := s.take()
	held, _ := s.dialStream(path)
	testenv.Eventually(t, "it is held", func() bool { return s.conn.NumSubscriptions() >= before+2 })
	_ = held.Close()
	testenv.Eventually(t, "it is noticed", func() bool { return s.conn.NumSubscriptions() <= before+pooled })
	s.emit(lease, `"first"`)
	s.wantStream(path+"?wait=1000", "IN_PROGRESS", `"first"`)
}

func TestAnAnswerOfAStreamThatGotLostIsToldAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := "/ep/stream/" + s.submit()
	large := `"` + strings.Repeat("x", 1000<<10) + `"`
	s.emit(s.take(), large)
	other, _, _ := s.beside(func(l net.Listener) net.Listener { return narrow{l} })
	for range 2 {
		conn, reader := other.dialStream(path)
		if line, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
			t.Fatalf("got %q, %v", line, err)
		}
		_ = conn.Close() // with a part of the answer
	}
	s.wantStream(path, "IN_PROGRESS", large)
	s.wantStream(path+"?wait=1000", "IN_PROGRESS")
}

// A client that has its answer may ask again at once, and elsewhere.
func TestAnAnswerOfAStreamEndsOnlyOnceTheCursorHasMoved(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	s.emit(s.take(), `1`)
	_, reader := s.dialStream("/ep/stream/" + id)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != `[{"output":1}]` {
		t.Fatalf("got %s, %v", got, err)
	}
	cursor, err := chunks.ReadCursor(t.Context(), s.queue.Bus(), s.endpoint.ID, job.ID(id))
	if err != nil || fmt.Sprint(cursor.Seq) != resp.Header.Get("X-Stream-Cursor") {
		t.Errorf("got cursor %d, %v, want it moved to %s before the answer's end", cursor.Seq, err, resp.Header.Get("X-Stream-Cursor"))
	}
}
