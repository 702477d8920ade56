// Package embedded runs a durable NATS JetStream server inside this process.
// It is the only package that may import nats-server: an importer
// links a whole message server.
//
// A server is safe unless its Config says otherwise: it listens on no port, and once it
// does, it wants a user and a password. Its store belongs to one server at a
// time; a second one is refused instead of writing over the first.
package embedded

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"

	"flightline/shared/bus/barrier"
)

// Reasons for which Start refuses a Config.
var (
	// ErrNoCredentials reports a server that would listen on a port, for
	// clients or for its cluster, and let anyone in.
	ErrNoCredentials = errors.New("embedded: a server that listens needs a user and a password")
	// ErrNoDir reports a Config without a Dir.
	ErrNoDir = errors.New("embedded: no directory for the store")
	// ErrInUse reports a Dir whose server is still running, here or in
	// another process.
	ErrInUse = errors.New("embedded: the store is in use by another server")
	// ErrStopping reports a server that is not gone yet.
	ErrStopping = errors.New("embedded: the server is still stopping")
)

// Config says where a server keeps its data and who may talk to it. The zero
// value is refused, as Dir is required; with only Dir it is a server for this
// process alone.
type Config struct {
	// Dir holds the store. It is created with mode 0700 if it is not there.
	// Required.
	Dir string
	// Listen is the TCP address for clients, host and port; port 0 picks a
	// free one, see Server.URL. "" means no listener at all: only Connect
	// reaches the server.
	Listen string
	// User and Password are what clients and the other nodes of the cluster
	// must show. Required when Listen or Cluster is set.
	User, Password string
	// File is the path of a configuration of nats-server that says all the rest:
	// users, accounts, TLS. What is set here counts nevertheless; User and
	// Password are then those of one of its users. "" means none.
	File string
	// TLS is what the listener for clients speaks; connections of this process
	// need none. nil means that it is plain. It is not for a Cluster: a File says
	// what servers show each other.
	TLS *tls.Config
	// Guests may come in beside them, and do what they are there for and no more.
	Guests []Guest
	// SyncAlways fsyncs each write before it is acknowledged: a single server
	// needs it to survive a power loss, at about a tenth of the speed, unless
	// those who write wait at the Barrier, which is faster for many writers. Without
	// it the server fsyncs every 2 minutes.
	SyncAlways bool
	// Barrier says that those who write wait at the Barrier: what a power loss
	// would take that was on the disk is then retained (ADR 0078), and messages
	// that no one waits for are fsynced within a second or two. It has no effect in a
	// cluster and on Windows.
	Barrier bool
	// MaxConns bounds the connections of clients, those of this process included; the
	// server closes further ones. A client has 2 s to give its password. 0 means
	// 65,536. It does not hold for File.
	MaxConns int
	// Mend looks for damage in the files of the store before the server opens
	// them, and leaves out what cannot be read: see Server.Damage. It is for a
	// server that is alone; a node of a cluster gets what it lacks from the others.
	Mend bool
	// ServerName is the name of this node; in a cluster it must be unique and
	// stay the same over restarts. "" means flightline. With a Barrier it is
	// barrier.ServerName.
	ServerName string
	// Cluster makes this server one node of several. nil means alone.
	Cluster *Cluster
	// Log gets what the server logs: its notices as debug lines, its
	// warnings and errors as such. nil means silence.
	Log *slog.Logger
}

// Cluster is how a node finds the others. JetStream needs three nodes or
// more, and all of them list all the others.
type Cluster struct {
	// Name is the same on each node. "" means flightline.
	Name string
	// Listen is the TCP address for the other nodes, host and port. Required.
	Listen string
	// Routes are the Listen addresses of the other nodes. A node may list
	// itself.
	Routes []string
}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return ErrNoDir
	case (c.Listen != "" || c.Cluster != nil || len(c.Guests) > 0) && (c.User == "" || c.Password == ""):
		return ErrNoCredentials
	}
	for _, guest := range c.Guests {
		if guest.User == "" || guest.Password == "" {
			return ErrNoCredentials
		}
	}
	return nil
}

// unbounded is a bound of the store that no disk reaches. The server's own one would be
// three quarters of what was free at its start: it would refuse writes that the disk
// takes, and those that make room too, until the next start.
const unbounded = 1 << 60

// serverName is ServerName with its default, which says whether there is a Barrier.
func (c Config) serverName() string {
	if c.Barrier {
		return barrier.ServerName
	}
	return cmp.Or(c.ServerName, "flightline")
}

func (c Config) options() (*server.Options, error) {
	if c.File != "" {
		return c.fileOptions()
	}
	opts := &server.Options{
		ServerName: c.serverName(),
		JetStream:  true,
		StoreDir:   c.Dir,
		SyncAlways: c.SyncAlways,
		MaxConn:    c.MaxConns,
		Username:   c.User,
		Password:   c.Password,
		DontListen: c.Listen == "",
		NoSigs:     true, // signals belong to package process
		TLSConfig:  c.TLS,

		JetStreamMaxStore: unbounded,
		// The cache is of subjects, and each job has its own: few are found in it, and each
		// subscription with a wildcard, of which a follower of chunks needs two, goes through all.
		NoSublistCache: true,
	}
	if c.Listen != "" {
		var err error
		if opts.Host, opts.Port, err = hostPort(c.Listen); err != nil {
			return nil, err
		}
	}
	if c.Cluster == nil {
		return opts, nil
	}
	return opts, c.addCluster(opts)
}

// fileOptions are those of the file, in our folder and at our address.
func (c Config) fileOptions() (*server.Options, error) {
	opts, err := server.ProcessConfigFile(c.File)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", c.File, err)
	}
	opts.JetStream, opts.StoreDir, opts.NoSigs = true, c.Dir, true
	if c.Listen != "" {
		opts.Host, opts.Port, err = hostPort(c.Listen)
	}
	return opts, err
}

func (c Config) addCluster(opts *server.Options) error {
	host, port, err := hostPort(c.Cluster.Listen)
	if err != nil {
		return err
	}
	opts.Cluster = server.ClusterOpts{
		Name: cmp.Or(c.Cluster.Name, "flightline"), Host: host, Port: port,
		Username: c.User, Password: c.Password,
	}
	for _, route := range c.Cluster.Routes {
		opts.Routes = append(opts.Routes, &url.URL{
			Scheme: "nats-route", User: url.UserPassword(c.User, c.Password), Host: route,
		})
	}
	return nil
}

// hostPort splits an address; the server wants -1 for a port of its choice.
func hostPort(address string) (string, int, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("listen address %q: %w", address, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("listen address %q: %w", address, err)
	}
	if port == 0 {
		return host, server.RANDOM_PORT, nil
	}
	return host, int(port), nil
}
