package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/cli"
	"flightline/shared/bus/barrier"
	"flightline/shared/bus/embedded"
	"flightline/shared/process"
	"flightline/shared/storehealth"
	"flightline/shared/tlsconfig"
	"flightline/streams"
)

// The settings of --sync.
const (
	syncAuto     = "auto" // group or always, as syncOn says
	syncAlways   = "always"
	syncGroup    = "group"
	syncInterval = "interval"
)

// syncOn is a setting of --sync on a file system that has hard links or not: group needs
// them for what a power loss would take (docs/adr/0078-retained-blocks.md).
func syncOn(setting string, hardLinks bool) string {
	switch {
	case setting != syncAuto:
		return setting
	case hardLinks:
		return syncGroup
	}
	return syncAlways
}

// busStopTimeout bounds the stop of the embedded server, which takes some 20 ms
// for each endpoint. What it leaves then is as after a SIGKILL, which loses nothing.
const busStopTimeout = 2 * time.Second

// busServer is the embedded NATS and our own connection to it.
type busServer struct {
	server *embedded.Server
	nc     *nats.Conn
	sync   string // always, group or interval
	log    *slog.Logger
	once   sync.Once // stop
}

func startBus(ctx context.Context, cfg Config, r cli.Running, shown *tlsconfig.Server, out io.Writer, log *slog.Logger) (*busServer, error) {
	address, why, err := natsAddress(ctx, cfg.NATSListen, r.NATSURL)
	if err != nil {
		return nil, err
	}
	var secured *tls.Config
	switch {
	case shown != nil:
		secured = shown.Config()
	case tlsconfig.Exposed(address):
		log.WarnContext(ctx, "plain NATS where other machines may reach it: passwords and jobs can be read on the way; give --tls-cert and --tls-key", "address", address)
	}
	server, err := embedded.Start(ctx, embedded.Config{
		Dir: filepath.Join(cfg.Data, storeDir), Listen: address, User: r.NATSUser, Password: r.NATSPassword, TLS: secured,
		Guests:     []embedded.Guest{{User: r.EventsUser, Password: r.EventsPassword, Requests: streams.EventReader()}},
		SyncAlways: r.Sync == syncAlways, Barrier: r.Sync == syncGroup, MaxConns: maxNATSConns(process.MaxFiles()), Mend: true, Log: log,
	})
	if errors.Is(err, embedded.ErrInUse) {
		return nil, inUse(cfg.Data)
	}
	if err != nil {
		return nil, err
	}
	nc, err := server.Connect("dev")
	if err == nil && why != "" {
		_, err = fmt.Fprintf(out, "NATS listens at %s, %s\n", server.URL(), why)
	}
	if err == nil {
		err = reportDamage(ctx, nc, server.Damage(), filepath.Join(cfg.Data, storeDir, embedded.DamagedDir), log)
	}
	if err != nil {
		server.Stop()
		return nil, err
	}
	return &busServer{server: server, nc: nc, sync: r.Sync, log: log}, nil
}

// maxNATSConns is how many clients NATS may have in a process that may open so many
// files, 0 for the server's default. HTTP has half of the files, the store the rest.
func maxNATSConns(files int) int {
	const quarter, most = 4, 1 << 16
	return min(files/quarter, most)
}

// applySubscriber makes the consumer that those who may only read events use.
func (b *busServer) applySubscriber(ctx context.Context) error {
	js, err := jetstream.New(b.nc)
	if err != nil {
		return fmt.Errorf("open jetstream: %w", err)
	}
	return streams.ApplySubscriber(ctx, js)
}

// durable is the barrier at which this process's writers wait, nil if the
// server's own setting decides.
func (b *busServer) durable() barrier.Func {
	if b.sync != syncGroup {
		return nil
	}
	return b.server.Barrier().Sync
}

// own is this server as a plan knows it.
func (b *busServer) own(store string) *ownNATS {
	return &ownNATS{
		store: store, checkPlace: b.server.CheckPlace, sync: b.sync,
		failed: func() []storehealth.Failure { return unsynced(b.server.Barrier()) },
	}
}

// serveBarrier lets the writers of other processes wait there too, or answers
// them that no barrier exists.
func (b *busServer) serveBarrier(ctx context.Context) error {
	return barrier.Serve(ctx, b.nc, streams.DurablePrefix, b.durable())
}

// run keeps the bus up for as long as the other parts need it.
func (b *busServer) run(ctx context.Context) error {
	<-ctx.Done()
	b.stop(ctx)
	return nil
}

// stop may be called twice. The process must end after it.
func (b *busServer) stop(ctx context.Context) {
	b.once.Do(func() {
		b.nc.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), busStopTimeout)
		defer cancel()
		if err := b.server.StopUntil(ctx); err != nil {
			b.log.DebugContext(ctx, "store left as it is, the next start recovers it", "err", err)
		}
	})
}

// inUse is the error that names the process which has the data folder.
func inUse(data string) error {
	who := "another process"
	if r, err := cli.FindRunning(data); err == nil {
		who = fmt.Sprintf("the process %d, at %s", r.PID, r.URL)
	}
	return fmt.Errorf("'flightline dev' runs already with the data folder %s: %s. Stop it, or choose another folder with --data", data, who)
}

const (
	natsOff     = "off"
	natsDefault = "127.0.0.1:4222"
	natsAnyPort = "127.0.0.1:0"
)

// natsAddress is where NATS is to listen, "" for nowhere. Only the default may
// be swapped, for the port of the last start, at which workers look for it, or a free
// one: an address that was asked for is meant. why says so to people, "" if it was not.
// last is the URL of the last start, "" at the first.
func natsAddress(ctx context.Context, asked, last string) (address, why string, err error) {
	switch asked {
	case natsOff:
		return "", "", nil
	case "":
	default:
		return asked, "", nil
	}
	var listening net.ListenConfig
	if u, err := url.Parse(last); err == nil && u.Port() != "" {
		address := net.JoinHostPort("127.0.0.1", u.Port())
		if probe, err := listening.Listen(ctx, "tcp", address); err == nil {
			return address, "as at the last start", probe.Close()
		}
	}
	probe, err := listening.Listen(ctx, "tcp", natsDefault)
	if err != nil {
		return natsAnyPort, "as " + natsDefault + " is taken", nil //nolint:nilerr // or not to be had: any other will do
	}
	return natsDefault, "", probe.Close()
}

// localURL is the URL of what listens on all addresses for those on this
// machine, or the URL itself.
func localURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || !net.ParseIP(u.Hostname()).IsUnspecified() {
		return address
	}
	u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	return u.String()
}
