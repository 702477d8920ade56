package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/disk"
)

// jobsAccount is the account of all clients of an embedded server.
const jobsAccount = server.DEFAULT_GLOBAL_ACCOUNT

// leaderPoll is the pause between two looks for a leader, which the server
// does not announce.
const leaderPoll = 10 * time.Millisecond

// readyTimeout bounds the wait for listeners after the store was recovered,
// which is all that can take long.
const readyTimeout = 10 * time.Second

// startInterval is the pause between two looks at a start.
const startInterval = 10 * time.Millisecond

// Server is a running server. Its methods may be called by several
// goroutines at once.
type Server struct {
	cfg     Config
	lock    *os.File
	barrier *Barrier

	ns      atomic.Pointer[server.Server] // another one after each Restart
	mu      sync.Mutex                    // held while it stops or starts
	stopped bool

	damage []Damage // found by mend
}

// Start starts a server and returns when it takes connections and has its
// store recovered; a node of a cluster may still be without a leader, see
// WaitForLeader. The caller must Stop it. A done ctx gives up the start, but
// does not stop a server that Start has returned. The errors are
// ErrNoDir, ErrNoCredentials, ErrInUse, ctx's, and what the server found
// wrong, such as an address in use.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create store: %w", err)
	}
	// Two servers on one store would each write over the other's data, and nats-server
	// itself does not look.
	lock, err := disk.Lock(filepath.Join(cfg.Dir, lockName))
	if errors.Is(err, disk.ErrLocked) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, cfg.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock store: %w", err)
	}
	s := &Server{cfg: cfg, lock: lock, barrier: newBarrier(cfg.Dir, cfg.Barrier)}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start server in %s: %w", cfg.Dir, err)
	}
	s.barrier.sweep()
	return s, s.settleListen()
}

// prepare brings the files in order that the last server has left.
func (s *Server) prepare(ctx context.Context) (err error) {
	if err = s.barrier.undoRemovals(ctx, s.cfg.Log); err != nil {
		return err
	}
	if s.damage, err = s.cfg.mend(ctx); err != nil {
		return err
	}
	return s.barrier.start()
}

// start returns when a new server is ready, has found something wrong, or ctx
// is done.
func (s *Server) start(ctx context.Context) error {
	if err := s.checkStreams(); err != nil {
		return err
	}
	opts, err := s.cfg.options()
	if err != nil {
		return err
	}
	var d *guestAuthenticator
	if len(s.cfg.Guests) > 0 {
		d = newGuestAuthenticator(s.cfg)
		opts.CustomClientAuthentication = d
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("configure server: %w", err)
	}
	s.ns.Store(ns)
	log := newLogger(s.cfg.Log)
	ns.SetLoggerV2(log, false, false, false)
	started := make(chan struct{})
	go func() { // ends with Start, which Shutdown cuts short
		defer close(started)
		ns.Start()
	}()
	if err := await(ctx, ns, started); err != nil {
		return err
	}
	if d != nil {
		if err := d.prepare(ns); err != nil {
			return err
		}
	}
	return ready(ns, log)
}

// await returns when the server has started, or was shut down because ctx is done. A
// Start does not notice a Shutdown that comes before it has reached the store: it
// would go on, and its server would run for ever.
func await(ctx context.Context, ns *server.Server, started <-chan struct{}) error {
	look := time.NewTicker(startInterval)
	defer look.Stop()
	for {
		select {
		case <-started:
			return nil
		case <-look.C:
			if ctx.Err() != nil && ns.JetStreamEnabled() {
				ns.Shutdown()
				<-started
				return ctx.Err()
			}
		}
	}
}

// ready returns once the server listens, or with what it found wrong: it opens
// the listener for other nodes after its Start has returned.
func ready(ns *server.Server, log *logger) error {
	const look = 50 * time.Millisecond
	for end := time.Now().Add(readyTimeout); ; {
		if err := log.fatal(); err != nil {
			return err
		}
		if ns.ReadyForConnections(look) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not ready in %v", readyTimeout)
		}
	}
}

// Damage is what Config.Mend found, in the order of streams and files.
func (s *Server) Damage() []Damage { return s.damage }

// Connect opens a connection that goes over no network. It is the caller's to
// close, reconnects after a Restart, and is of no use once the server was
// stopped. The name distinguishes it from others; "" means flightline.
func (s *Server) Connect(name string) (*nats.Conn, error) {
	return bus.Connect(bus.Config{
		InProcess: s, Name: name, User: s.cfg.User, Password: s.cfg.Password, Log: s.cfg.Log,
	})
}

// InProcessConn implements nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.Load().InProcessConn() }

// URL is the address for clients, with the port the server was given and
// without credentials; "" if it does not listen.
func (s *Server) URL() string {
	if s.cfg.Listen == "" {
		return ""
	}
	return s.ns.Load().ClientURL()
}

// Stop closes all connections, writes what is not yet written, and returns
// when the server is gone and its store free for the next one. Only the first
// call does something; the others wait for it. It takes about 20 ms for each
// work queue: the server stops one consumer after the other, and waits 10 ms for
// the routine that writes its state.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.stopped = true
	s.shutdown()
	s.barrier.leave()
	s.barrier.stop()
	if err := s.lock.Close(); err != nil {
		s.cfg.Log.Warn("store not unlocked", "dir", s.cfg.Dir, "err", err)
	}
}

// shutdown returns when the server is gone.
func (s *Server) shutdown() {
	if ns := s.ns.Load(); ns != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
	}
}

// StopUntil is Stop for a process that ends, which may have thousands of work
// queues: it returns when ctx ends at the latest, with ErrStopping if the server
// is not gone. What it left is as after a SIGKILL: what was acknowledged is there,
// and what consumers wrote down is at most about 0.1 s old. The store stays locked
// until the process ends.
func (s *Server) StopUntil(ctx context.Context) error {
	gone := make(chan struct{})
	go func() { // ends with the server, or with the process
		s.Stop()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return ErrStopping
	}
}

// WaitForLeader returns when this node follows or is the leader of the
// cluster's JetStream, so that streams can be made and found; at once for a
// server that is alone. It returns ctx's error if that does not happen in
// time.
func (s *Server) WaitForLeader(ctx context.Context) error {
	tick := time.NewTicker(leaderPoll)
	defer tick.Stop()
	for !s.ns.Load().JetStreamIsCurrent() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for a JetStream leader: %w", ctx.Err())
		}
	}
	return nil
}

// Peers are the names of the nodes on which new streams can be placed, this
// one among them. Only the leader of the cluster's JetStream knows: nil on any
// other node, and on a server that is alone.
func (s *Server) Peers() []string {
	ns := s.ns.Load()
	if !ns.JetStreamIsClustered() {
		return nil
	}
	return ns.JetStreamClusterPeers()
}

// LeadsStream reports whether this node is the leader of the named stream. A
// server that is alone leads each of its streams.
func (s *Server) LeadsStream(stream string) bool {
	return s.ns.Load().JetStreamIsStreamLeader(jobsAccount, stream)
}
