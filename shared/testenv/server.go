// Package testenv is the base of the test kit: a real NATS server or cluster of
// the test's own, waiting for facts, and code that runs beside the test. Servers
// can be stopped and started in mid-test while connections live on.
//
// Package backend adds what a service needs on the server, package program runs
// the built flightline binary. An error of the environment itself fails the test
// at once; no method returns one.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/bus/barrier"
	"flightline/shared/bus/embedded"
	"flightline/shared/testenv/port"
)

// Credentials of every test server. It listens on loopback only, and they
// are what tests look for in logs.
const (
	user     = "testenv"
	password = "testenv-password"
)

const (
	// startWithin bounds each wait for a server or a leader; on a busy
	// machine an election may take a few rounds of some seconds.
	startWithin = 30 * time.Second
	// retryPause is the pause between attempts at a port that is still taken.
	retryPause = 50 * time.Millisecond
)

// Server is one NATS server with JetStream, and a connection to it.
type Server struct {
	// NC is a connection over loopback TCP. It reconnects after Start.
	NC *nats.Conn
	// JS is JetStream over NC.
	JS jetstream.JetStream

	t    testing.TB
	node *node
}

// NewServer starts a server that acknowledges a write once the operating system
// has it. That survives Stop, but no power loss.
func NewServer(t testing.TB) *Server {
	t.Helper()
	return start(t, embedded.Config{})
}

// NewBarrierServer starts a server whose writes are on the disk only after a wait at a
// barrier, which ServeBarrier serves, as flightline dev does with --sync group.
func NewBarrierServer(t testing.TB) *Server {
	t.Helper()
	return start(t, embedded.Config{Barrier: true})
}

func start(t testing.TB, cfg embedded.Config) *Server {
	t.Helper()
	in := memory()
	if cfg.Barrier {
		in = "" // the disk is a part of it
	}
	cfg.Dir, cfg.User, cfg.Password = folder(t, in), user, password
	s := &Server{t: t, node: &node{cfg: cfg}}
	t.Cleanup(s.node.stop)
	s.Start()
	s.NC = s.Connect(t)
	s.JS = newJetStream(t, s.NC)
	return s
}

// Stop ends the server at once, also for other connections. What
// was acknowledged is on disk. Stopping a stopped server does nothing.
func (s *Server) Stop() { s.node.stop() }

// Kill takes the server away as SIGKILL does: what Start brings back is what its
// files hold now, without what a server writes while it stops.
func (s *Server) Kill() {
	s.t.Helper()
	for {
		dir := folder(s.t, filepath.Dir(s.node.cfg.Dir))
		err := os.CopyFS(dir, os.DirFS(s.node.cfg.Dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the server removed a file meanwhile
		}
		if err != nil {
			s.t.Fatalf("copy the store: %v", err)
		}
		s.node.stop()
		s.node.cfg.Dir = dir
		return
	}
}

// Dir is the folder that holds what the server has stored. Kill moves it.
func (s *Server) Dir() string { return s.node.cfg.Dir }

// Start brings a stopped server back, with the same data at the same address,
// and returns when it takes connections; those that were open come back by
// themselves, usually within 0.2 s.
func (s *Server) Start() {
	s.t.Helper()
	s.node.start(s.t)
}

// StreamDir is the directory of a stream's files, for tests that damage them
// while the server is stopped.
func (s *Server) StreamDir(stream string) string {
	return filepath.Join(s.node.cfg.Dir, "jetstream", "$G", "streams", stream)
}

// BreakStore makes a write to the stream fail once it needs another block, after
// 8 MB at most, and so all that follow until the server was restarted: in place
// of that block there is a folder. The function it returns takes it away.
func (s *Server) BreakStore(stream string) (mend func()) {
	s.t.Helper()
	blocks := filepath.Join(s.StreamDir(stream), "msgs")
	for n := 1; ; n++ {
		block := filepath.Join(blocks, fmt.Sprintf("%d.blk", n))
		if _, err := os.Stat(block); err == nil {
			continue
		}
		if err := os.Mkdir(block, 0o700); err != nil {
			s.t.Fatal(err)
		}
		return func() {
			s.t.Helper()
			if err := os.Remove(block); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// SaveMessages copies the messages of a stream while the server is stopped. restore
// puts them back while it is stopped again. The consumers keep their own state: so
// a server is found that stopped between an ack and the removal of its message.
func (s *Server) SaveMessages(t testing.TB, stream string) (restore func()) {
	t.Helper()
	messages, saved := filepath.Join(s.StreamDir(stream), "msgs"), folder(t, filepath.Dir(s.node.cfg.Dir))
	if err := os.CopyFS(saved, os.DirFS(messages)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		err := os.RemoveAll(messages)
		if err == nil {
			err = os.CopyFS(messages, os.DirFS(saved))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Connect opens one more connection, closed at the end of t's test.
func (s *Server) Connect(t testing.TB) *nats.Conn {
	t.Helper()
	return Connect(t, s.Config())
}

// Config is what a part under test needs to connect by itself.
func (s *Server) Config() bus.Config {
	return bus.Config{URL: "nats://" + s.node.cfg.Listen, User: user, Password: password, Name: s.t.Name()}
}

// Messages is how many messages a stream has.
func (s *Server) Messages(t testing.TB, stream string) uint64 {
	t.Helper()
	found, err := s.JS.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return found.CachedInfo().State.Msgs
}

// ServeBarrier is the process that has the server, and answers sync. It ends with
// the test or by stop. A server of NewServer is started again with a barrier.
func (s *Server) ServeBarrier(t testing.TB, prefix string, sync barrier.Func) (stop func()) {
	t.Helper()
	if !s.node.cfg.Barrier {
		s.Stop()
		s.node.cfg.Barrier = true
		s.Start()
	}
	nc := s.Connect(t)
	return Background(t, func(ctx context.Context) error { return barrier.Serve(ctx, nc, prefix, sync) })
}

// WaitForBarrier waits until a barrier is served.
func (s *Server) WaitForBarrier(t testing.TB, prefix string) {
	t.Helper()
	r := barrier.NewRemote(s.NC, prefix)
	Eventually(t, "a barrier is served", func() bool { return r.Sync(t.Context(), "none") == nil })
}

// node is a server that can be started again where it was.
type node struct {
	cfg embedded.Config // Listen is settled by the first start; "" before

	mu  sync.Mutex
	srv *embedded.Server // nil while stopped
}

// running is the server, nil while it is stopped.
func (n *node) running() *embedded.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.srv
}

// start starts the server, or does nothing if it runs. A port that is taken
// is tried again, the first time another one.
func (n *node) start(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv != nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	for {
		cfg := n.cfg
		if cfg.Listen == "" {
			cfg.Listen = FreePorts(t, 1)[0]
		}
		srv, err := embedded.Start(ctx, cfg)
		if err == nil {
			n.cfg, n.srv = cfg, srv
			return
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			t.Fatalf("start server: %v", err)
		}
	}
}

func (n *node) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv != nil {
		n.srv.Stop()
		n.srv = nil
	}
}

// Connect connects until the test ends. A busy machine may not answer within the
// time that bus.Connect gives a server, so it tries again.
func Connect(t testing.TB, cfg bus.Config) (nc *nats.Conn) {
	t.Helper()
	Retry(t, func() (err error) { nc, err = bus.Connect(cfg); return err })
	t.Cleanup(nc.Close)
	return nc
}

// Subscribe subscribes until the test ends. The server knows of the subscription
// when Subscribe returns, so what any connection sends from then on arrives.
func Subscribe(t testing.TB, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	return subscribed(t, nc, sub, err)
}

// Handle calls handle with what Subscribe would receive.
func Handle(t testing.TB, nc *nats.Conn, subject string, handle nats.MsgHandler) {
	t.Helper()
	sub, err := nc.Subscribe(subject, handle)
	subscribed(t, nc, sub, err)
}

func subscribed(t testing.TB, nc *nats.Conn, sub *nats.Subscription, err error) *nats.Subscription {
	t.Helper()
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() }) // the connection may be closed by then
	return sub
}

func newJetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("open JetStream: %v", err)
	}
	return js
}

// FreePorts are n addresses on loopback for servers that start later, or come back.
func FreePorts(t testing.TB, n int) []string {
	t.Helper()
	found, err := port.Free(n)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
