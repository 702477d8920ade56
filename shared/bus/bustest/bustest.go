// Package bustest gives a test a real bus: a durable JetStream server of its
// own that is ready in milliseconds and gone with the test, or a cluster of
// three. Servers can be stopped and started in the middle of a test while
// its connections live on.
//
// A test that finds the bus itself broken fails at once; none of the methods
// returns an error for that.
package bustest

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
	"flightline/shared/bus/embedded"
)

// Credentials of every test server. It listens on loopback only, and they
// are what tests look for in logs.
const (
	user     = "bustest"
	password = "bustest-password"
)

const (
	// startWithin bounds each wait for a server or a leader; on a busy
	// machine an election may take a few rounds of some seconds.
	startWithin = 30 * time.Second
	// retryPause is the pause between attempts at a port that is still taken.
	retryPause = 50 * time.Millisecond
)

// Bus is one server and a connection to it.
type Bus struct {
	// NC is a connection over loopback TCP. It reconnects after Start.
	NC *nats.Conn
	// JS is JetStream over NC.
	JS jetstream.JetStream

	t    testing.TB
	node *node
}

// New starts a server that acknowledges a write once the operating system has
// it, as fast as can be: what survives Stop, but not a power loss.
func New(t testing.TB) *Bus {
	t.Helper()
	return start(t, embedded.Config{})
}

// NewSync starts a server that fsyncs each write before it acknowledges it,
// as flightline dev does. About a tenth as fast as New.
func NewSync(t testing.TB) *Bus {
	t.Helper()
	return start(t, embedded.Config{SyncAlways: true})
}

func start(t testing.TB, cfg embedded.Config) *Bus {
	t.Helper()
	cfg.Dir, cfg.User, cfg.Password = tempDir(t), user, password
	b := &Bus{t: t, node: &node{cfg: cfg}}
	t.Cleanup(b.node.stop)
	b.Start()
	b.NC = b.Connect(t)
	b.JS = newJetStream(t, b.NC)
	return b
}

// Stop takes the server away in an instant, for all who are connected. What
// was acknowledged is on disk. Stopping a stopped server does nothing.
func (b *Bus) Stop() { b.node.stop() }

// Kill takes the server away as SIGKILL does: what Start brings back is what its
// files hold now, without what a server writes while it stops.
func (b *Bus) Kill() {
	b.t.Helper()
	for {
		dir := tempDir(b.t)
		err := os.CopyFS(dir, os.DirFS(b.node.cfg.Dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the server removed a file meanwhile
		}
		if err != nil {
			b.t.Fatalf("copy the store: %v", err)
		}
		b.node.stop()
		b.node.cfg.Dir = dir
		return
	}
}

// Dir is the folder that holds what the server has stored. Kill moves it.
func (b *Bus) Dir() string { return b.node.cfg.Dir }

// Start brings a stopped server back, with the same data at the same address,
// and returns when it takes connections; those that were open come back by
// themselves, usually within 0.2 s.
func (b *Bus) Start() {
	b.t.Helper()
	b.node.start(b.t)
}

// StreamDir is the directory of a stream's files, for tests that damage them
// while the server is stopped.
func (b *Bus) StreamDir(stream string) string {
	return filepath.Join(b.node.cfg.Dir, "jetstream", "$G", "streams", stream)
}

// BreakStore makes a write to the stream fail once it needs another block, after
// 8 MB at most, and so all that follow until the server was restarted: in place
// of that block there is a folder. The function it returns takes it away.
func (b *Bus) BreakStore(stream string) (mend func()) {
	b.t.Helper()
	blocks := filepath.Join(b.StreamDir(stream), "msgs")
	for n := 1; ; n++ {
		block := filepath.Join(blocks, fmt.Sprintf("%d.blk", n))
		if _, err := os.Stat(block); err == nil {
			continue
		}
		if err := os.Mkdir(block, 0o700); err != nil {
			b.t.Fatal(err)
		}
		return func() {
			b.t.Helper()
			if err := os.Remove(block); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// Connect opens one more connection, closed at the end of t's test.
func (b *Bus) Connect(t testing.TB) *nats.Conn {
	t.Helper()
	return connect(t, b.Config())
}

// Config is what a part under test needs to connect by itself.
func (b *Bus) Config() bus.Config {
	return bus.Config{URL: "nats://" + b.node.cfg.Listen, User: user, Password: password, Name: b.t.Name()}
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

func connect(t testing.TB, cfg bus.Config) *nats.Conn {
	t.Helper()
	nc, err := bus.Connect(cfg)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func newJetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("open JetStream: %v", err)
	}
	return js
}

// tempDir is not t.TempDir, which fails the test when a server's last file
// appears while the folder is being removed.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bustest-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Logf("left behind: %v", err)
		}
	})
	return dir
}
