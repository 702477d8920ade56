package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"flightline/shared/job"
	"flightline/shared/telemetry"
)

// Config are the settings of an app. The zero value is good.
type Config struct {
	// BodyLimit is the largest body, in bytes, that any route may see; each
	// route sets its own limit with MaxBody. 0 means 20 MiB and 64 KiB: a body
	// a little over a route's limit is read whole and answered properly.
	BodyLimit int
	// BodyMemory bounds the sum of the bodies over 64 KiB that are under way, of
	// requests and of answers, in bytes. Room is taken as a body arrives; a request
	// waits a second for it, then it gets 503 and is not read. One key may have half
	// of it. The process takes about four times as much. 0 means MostBodyMemory.
	BodyMemory int
	// Known, if not nil, returns nil if the key of a request is good for anything,
	// else the error that answers it. It is asked before a body over 64 KiB is read,
	// with the request's header only: no parameters of a route.
	Known func(c *fiber.Ctx) error
	// Patient, if not nil, reports whether a request waits a minute in place of a second
	// for the room of a body whose size it announces, since its client drops what is
	// refused. It is asked as Known is.
	Patient func(c *fiber.Ctx) bool
	// HeaderTimeout bounds how long a client may take to send the header of a
	// request and a body of at most 64 KiB, from the start of a new connection, or
	// from the first byte of a later request. 0 means 10 s.
	HeaderTimeout time.Duration
	// Oversized, if not nil, may answer a request whose body is over BodyLimit and
	// is not read to its end; it returns false to leave that to the app, which answers
	// 413. Only the request's header is there: no parameters of a route.
	Oversized func(c *fiber.Ctx) bool
	// Observed, if not nil, is called after each request that got as far as the
	// routes. Route is the template of the route that answered, "/" if none did,
	// as the method is; took lasts until the answer begins.
	Observed func(method, route string, status int, took time.Duration)
	// Roles are what this process serves, for the answer to a route that may be another's.
	// nil says that it serves all.
	Roles []string
	// Hosts are the names that requests may ask for. nil means any.
	Hosts Hosts
	// Tracer makes a span of each request. nil means none.
	Tracer *telemetry.Tracer
	// Log gets errors that are ours. nil means silence.
	Log *slog.Logger
}

// MostBodyMemory is Config.BodyMemory where much memory is there, in bytes.
const MostBodyMemory = 512 << 20

const (
	defaultBodyLimit     = job.MaxRunSyncBody + 64<<10
	defaultHeaderTimeout = 10 * time.Second
	// idleTimeout closes a connection that waits for its next request.
	idleTimeout = 2 * time.Minute
	// readBufferSize bounds the headers of a request.
	readBufferSize = 64 << 10
	// idleWorker is how long fasthttp keeps a goroutine for a next connection,
	// and how long one of its own outlives Serve; its default is 10 s.
	idleWorker = 250 * time.Millisecond
)

// New makes an app whose answers are all JSON objects. Routes are added to it,
// then Serve runs it.
func New(cfg Config) *fiber.App {
	log := cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	app := fiber.New(fiber.Config{
		AppName:               "flightline",
		BodyLimit:             cmp.Or(cfg.BodyLimit, defaultBodyLimit),
		CaseSensitive:         true,
		DisableStartupMessage: true,
		// A form's content type says nothing: RunPod's workers send JSON under it.
		DisablePreParseMultipartForm: true,
		ErrorHandler:                 answerError(log, cfg.Roles),
		IdleTimeout:                  idleTimeout,
		ReadBufferSize:               readBufferSize,
		ReadTimeout:                  cmp.Or(cfg.HeaderTimeout, defaultHeaderTimeout),
		StreamRequestBody:            true, // bodies reads them, and knows BodyLimit
		WriteTimeout:                 0,    // answers may be held for minutes
	})
	app.Server().ConnState = func(of net.Conn, state fasthttp.ConnState) {
		if c := connOf(of); c != nil {
			c.setState(state)
		}
	}
	app.Server().MaxIdleWorkerDuration = idleWorker
	limit := app.Config().BodyLimit
	b := &bodies{
		memory: newMemory(cmp.Or(cfg.BodyMemory, MostBodyMemory), limit), app: app, limit: limit,
		known: cfg.Known, patient: cfg.Patient, oversized: cfg.Oversized,
	}
	app.Server().HeaderReceived = b.header
	app.Server().ExpectHandler = b.expect
	app.Server().Handler = b.handle(beforeRouting(app.Server().Handler))
	app.Server().ErrorHandler = refusal(app.Server().ErrorHandler)
	app.Use(identify(appState{log: log, refused: newRefusals(), memory: b.memory}))
	if cfg.Hosts != nil {
		app.Use(cfg.Hosts.check)
	}
	if cfg.Observed != nil {
		app.Use(observe(cfg.Observed))
	}
	if cfg.Tracer != nil {
		app.Use(traced(cfg.Tracer))
	}
	app.Use(recoverPanic)
	return app
}

// beforeRouting does what must be done before Fiber looks at the path, or
// would be answered by it in plain text.
//
// Fiber answers a method that it does not know in plain text. No route takes TRACE,
// so such a request is answered like that one: 405 with Allow, or 404.
func beforeRouting(route fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		normalizePath(&ctx.Request)
		if !slices.Contains(fiber.DefaultMethods, string(ctx.Method())) {
			ctx.Request.Header.SetMethod(fiber.MethodTrace)
		}
		route(ctx)
	}
}

// appState is what the requests of an app share.
type appState struct {
	log     *slog.Logger
	refused *refusals
	memory  *memory
}

// localState is where the state is kept while a request is handled.
type localState struct{}

// stateOf returns the state of the request's app, nil outside of an app of New.
func stateOf(c *fiber.Ctx) *appState {
	state, _ := c.Locals(localState{}).(*appState)
	return state
}

// identify gives the request its id and the state.
func identify(state appState) fiber.Handler {
	return func(c *fiber.Ctx) error {
		c.Set(HeaderRequestID, RequestID(c))
		c.Locals(localState{}, &state)
		return c.Next()
	}
}

// recoverPanic turns a panic into an error whose text, with the stack, ends in
// the log.
func recoverPanic(c *fiber.Ctx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return c.Next()
}

func panicked(value any) error { return fmt.Errorf("panic: %v\n%s", value, debug.Stack()) }

// normalizePath makes the path what was meant. In /v2//ep/run the base URL ends in a slash,
// a common mistake, and a redirect would turn POST into GET. In /v2/%65p/run a letter is
// percent-encoded, which means the letter (RFC 3986, section 6.2.2.2).
func normalizePath(r *fasthttp.Request) {
	uri := r.Header.RequestURI()
	if len(uri) == 0 || uri[0] != '/' {
		return // the absolute form, or *
	}
	path, query, _ := bytes.Cut(uri, []byte("?"))
	if !bytes.Contains(path, []byte("//")) && bytes.IndexByte(path, '%') < 0 {
		return
	}
	clean := make([]byte, 0, len(uri))
	for i := 0; i < len(path); i++ {
		if b, ok := unreserved(path[i:]); ok {
			clean = append(clean, b)
			i += len("%65") - 1
		} else if path[i] != '/' || i == 0 || path[i-1] != '/' {
			clean = append(clean, path[i])
		}
	}
	if len(path) < len(uri) {
		clean = append(append(clean, '?'), query...)
	}
	r.SetRequestURIBytes(clean)
}

// unreserved returns the character that text begins with in percent-encoding, if it is one
// that means the same without.
func unreserved(text []byte) (byte, bool) {
	var b [1]byte
	if len(text) < len("%65") || text[0] != '%' {
		return 0, false
	}
	_, err := hex.Decode(b[:], text[1:3])
	return b[0], err == nil && (b[0] >= 'a' && b[0] <= 'z' || b[0] >= 'A' && b[0] <= 'Z' || b[0] >= '0' && b[0] <= '9' || bytes.IndexByte([]byte("-._~"), b[0]) >= 0)
}

// stopWithin is how long Serve waits for the requests under way. Handlers that
// hold an answer let go at once (LongPoll).
const stopWithin = 10 * time.Second

// Serve answers requests on the listener until ctx ends, then lets those under
// way finish, and returns nil. A request that has not arrived after 3 s is answered 408.
// It returns an error if the listener breaks, or if requests were still under way after
// 10 s. It closes the listener.
func Serve(ctx context.Context, app *fiber.App, listener net.Listener) error {
	served := make(chan error, 1)
	connections := &connections{open: map[*conn]struct{}{}}
	go func() { served <- app.Listener(listening{listener, connections}) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", listener.Addr(), cmp.Or(err, net.ErrClosed))
	case <-ctx.Done():
	}
	connections.receiveUntil(time.Now().Add(receiveTimeout))
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	err := app.ShutdownWithContext(grace)
	_ = listener.Close() // closed already, unless the end came before the start
	if err != nil {
		return fmt.Errorf("stop serving %s: %w", listener.Addr(), err)
	}
	return <-served
}

// containerHost is the name by which containers reach this machine. Nobody can
// point it elsewhere: its top-level domain is reserved.
const containerHost = "host.docker.internal"

// Hosts are the names by which a server may be asked, besides those of loopback: a
// page of a site whose name was pointed at 127.0.0.1 must not reach it (DNS
// rebinding). Nil means any name.
type Hosts []string

// Allow reports whether the value of a Host header is a loopback address, localhost,
// the name for containers, or one of the names. The port does not count. No browser
// sends an empty one, which HTTP/1.0 allows.
func (h Hosts) Allow(host string) bool {
	if h == nil || host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback() || slices.Contains(h, host)
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || host == containerHost || slices.Contains(h, host)
}

// check refuses a request by another name.
func (h Hosts) check(c *fiber.Ctx) error {
	if host := string(c.Request().Host()); !h.Allow(host) {
		return Errorf(InvalidRequest, "host %.200q is not served here: use a loopback address, or allow the name with --host", host)
	}
	return c.Next()
}

// observe calls seen for each request, once its answer has a status. The
// route's strings live as long as the app does.
func observe(seen func(method, route string, status int, took time.Duration)) fiber.Handler {
	return func(c *fiber.Ctx) error {
		start := time.Now()
		if err := c.Next(); err != nil {
			if err := c.App().ErrorHandler(c, err); err != nil {
				return err
			}
		}
		r := c.Route()
		seen(r.Method, r.Path, c.Response().StatusCode(), time.Since(start))
		return nil
	}
}
