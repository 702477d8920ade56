// Package bus is Flightline's access to NATS. Connect opens a connection the one way
// all of Flightline does: it notices a dead server within two seconds, reconnects
// for ever, and never buffers a publish while the server is away. Client speaks
// JetStream over such a connection: reads that the stream's leader answers, writes
// with compare-and-set, batch reads, the server's clock and its availability.
//
// The server inside this process is package bus/embedded, the one for tests package
// testenv.
package bus

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"flightline/shared/retry"
)

// A server that stops answering is given up after pingInterval times
// (maxPings + 1): 1.5 s. With the defaults of nats.go it would be four
// minutes, in which every request hangs.
const (
	pingInterval = 500 * time.Millisecond
	maxPings     = 2
	dialTimeout  = 2 * time.Second
)

// reconnectWait is the longest pause between two attempts to come back, half of it the
// shortest. After a refused password or certificate it is refusedWait: each try is a line in
// the server's log.
const (
	reconnectWait = 200 * time.Millisecond
	refusedWait   = 2 * time.Second
)

// noReconnectBuffer makes publishing fail at once while disconnected. A
// buffered publish would look accepted and could still be lost.
const noReconnectBuffer = -1

// ErrURL reports a Config.URL that is not a NATS address. The address is left
// out of the text, as it may hold a password.
var ErrURL = errors.New("bus: not a NATS address")

// Config says where the bus is and who asks. The zero value is a NATS server
// on this machine that wants no credentials.
type Config struct {
	// URL is one address or several with commas between them, all of one
	// cluster. "" means nats://127.0.0.1:4222. Better no user and password in
	// it: User and Password are for that.
	URL string
	// CredsFile is the path of a NATS credentials file (JWT and seed). ""
	// means none. It is read again at each reconnect.
	CredsFile string
	// User and Password are sent when User is not "".
	User, Password string
	// InboxPrefix begins the subjects on which this connection receives answers,
	// for a user who may listen to no others. "" means _INBOX.
	InboxPrefix string
	// TLS are files for a connection over TLS. The zero value leaves it to the
	// server: a URL tls://… or a server that wants it is believed if the
	// system's authorities vouch for it.
	TLS TLS
	// Name distinguishes this connection from others in the server's lists and in
	// our log. "" means flightline.
	Name string
	// InProcess is a server in this process; with it URL is not used, and
	// nothing goes over the network. nil means URL decides.
	InProcess nats.InProcessConnProvider
	// Wait lets Connect succeed while the server is away: the connection is
	// then made in the background, and requests fail until it is. false means
	// that Connect fails if the server cannot be reached within 2 s.
	Wait bool
	// Log receives disconnects and reconnects. Nil discards them.
	Log *slog.Logger
}

// TLS names files in PEM.
type TLS struct {
	// CA are the authorities that may vouch for the server. "" means the
	// system's.
	CA string
	// Cert and Key are what we show, both or neither.
	Cert, Key string
}

// options make a connection without TLS impossible if any file is named.
func (t TLS) options() []nats.Option {
	var opts []nats.Option
	if t.CA != "" {
		opts = append(opts, nats.RootCAs(t.CA))
	}
	if t.Cert != "" || t.Key != "" {
		opts = append(opts, nats.ClientCert(t.Cert, t.Key))
	}
	return opts
}

// Connect opens a connection that stays usable until it is closed: it
// reconnects forever, also after refused credentials, and restores its
// subscriptions. While the server is away a publish returns
// nats.ErrReconnectBufExceeded at once. The errors are ErrURL and those of
// nats.Connect, such as nats.ErrNoServers and nats.ErrAuthorization.
func Connect(cfg Config) (*nats.Conn, error) {
	address := cmp.Or(cfg.URL, nats.DefaultURL)
	redacted, err := Redact(address)
	if err != nil {
		return nil, err
	}
	if cfg.InProcess != nil {
		redacted = "this process"
	}
	nc, err := nats.Connect(address, options(cfg)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", redacted, err)
	}
	return nc, nil
}

// Why returns why a connection cannot be made now, with the address, or nil if
// it can: a connection that waits for its server does not tell. It tries for 2 s
// at most.
func Why(cfg Config) error {
	cfg.Wait, cfg.Log = false, nil
	nc, err := Connect(cfg)
	if err != nil {
		return err
	}
	nc.Close()
	return nil
}

func options(cfg Config) []nats.Option {
	opts := []nats.Option{
		nats.Name(cmp.Or(cfg.Name, "flightline")),
		nats.Timeout(dialTimeout),
		nats.SetCustomDialer(dialer{}),
		nats.SkipHostLookup(),  // the dialer does it
		nats.FlusherTimeout(0), // its connections bound each write
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(noReconnectBuffer),
		nats.RetryOnFailedConnect(cfg.Wait),
		nats.IgnoreAuthErrorAbort(), // credentials may be rotated while we run
		nats.NoCallbacksAfterClientClose(),
	}
	opts = append(opts, newReports(cfg).options()...)
	if cfg.InProcess != nil {
		opts = append(opts, nats.InProcessServer(inProcess{cfg.InProcess}))
	}
	opts = append(opts, cfg.TLS.options()...)
	if cfg.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(cfg.InboxPrefix))
	}
	if cfg.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(cfg.CredsFile))
	}
	if cfg.User != "" {
		opts = append(opts, nats.UserInfo(cfg.User, cfg.Password))
	}
	return opts
}

// reports logs what happens to a connection.
type reports struct {
	log *slog.Logger
	url string // without its password
	// unreached and unmade bound the lines about tries to come back that reached no server,
	// and those that did.
	unreached, unmade *rate.Limiter
	// refused: the server did not take the password, or one side the certificate of the
	// other, since the last connection.
	refused atomic.Bool
	// conn is set once the connection was lost.
	conn atomic.Pointer[nats.Conn]
}

func newReports(cfg Config) *reports {
	log := cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	url, _ := Redact(cmp.Or(cfg.URL, nats.DefaultURL)) // Connect has checked it
	aMinute := rate.Every(time.Minute)
	return &reports{
		log: log.With("connection", cmp.Or(cfg.Name, "flightline")), url: url,
		unreached: rate.NewLimiter(aMinute, 1), unmade: rate.NewLimiter(aMinute, 1),
	}
}

func (r *reports) options() []nats.Option {
	return []nats.Option{
		nats.CustomReconnectDelay(func(int) time.Duration { return r.reconnectDelay() }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			r.conn.Store(nc)
			r.log.Warn("nats disconnected", "err", err)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			if r.unreached.Allow() {
				r.log.Warn("nats cannot be reached, trying again", "url", r.url, "err", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			r.refused.Store(false)
			r.log.Info("nats reconnected", "url", nc.ConnectedUrlRedacted(), "reconnects", nc.Stats().Reconnects)
		}),
		nats.ErrorHandler(r.failed),
	}
}

// reconnectDelay is the pause before the next try to come back.
func (r *reports) reconnectDelay() time.Duration {
	if nc := r.conn.Load(); nc != nil && nc.LastError() != nil {
		r.notMade(nc.LastError()) // a failed handshake is reported in no other way
	}
	if r.refused.Load() {
		return refusedWait
	}
	return retry.Jitter(reconnectWait)
}

// notMade reports why a connection to a server that was reached could not be made.
func (r *reports) notMade(err error) {
	if errors.Is(err, nats.ErrAuthorization) || strings.Contains(err.Error(), "tls: ") {
		r.refused.Store(true)
	}
	if r.unmade.Allow() {
		r.log.Warn("nats connection cannot be made, trying again", "url", r.url, "err", err)
	}
}

// failed is nats.go's handler of all other errors.
func (r *reports) failed(nc *nats.Conn, sub *nats.Subscription, err error) {
	switch {
	case nc.IsConnected():
	case errors.Is(err, nats.ErrConsumerNotActive):
		return // the end of the connection was logged
	case sub == nil:
		r.notMade(err)
		return
	}
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `Subscription to "`+nats.InboxPrefix) {
		err = fmt.Errorf("%w: no answer can come; the user has inboxes with a prefix, so give it (--nats-inbox-prefix)", err)
	}
	r.log.Warn("nats error", "subject", subject, "err", err)
}

// schemes are those of NATS; with another one the client would try all the same.
var schemes = []string{"nats", "tls", "ws", "wss"}

// Redact returns the addresses of a Config.URL without passwords, or ErrURL. It
// also keeps an address that cannot be parsed from nats.Connect, whose error
// would quote it.
func Redact(addresses string) (string, error) {
	list := strings.Split(addresses, ",")
	for i, address := range list {
		address = strings.TrimSpace(address)
		if !strings.Contains(address, "://") {
			address = "nats://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme) {
			return "", ErrURL
		}
		if u.User != nil {
			u.User = url.User("xxxxx") // a lone user name is a token
		}
		list[i] = u.String()
	}
	return strings.Join(list, ","), nil
}
