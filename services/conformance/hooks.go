package conformance

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// hooks receives webhooks.
type hooks struct {
	server *http.Server
	base   string
	done   chan struct{}
	mu     sync.Mutex
	all    map[string]*hook
}

// hook is one address, and what came there.
type hook struct {
	url     string
	answers []int // the status of each attempt; 200 for further ones
	mu      sync.Mutex
	got     []delivery
}

type delivery struct {
	at   time.Time
	body []byte
}

// headerWithin bounds reading a webhook's header.
const headerWithin = 10 * time.Second

// listenHooks listens at the address, "" being a free port of 127.0.0.1.
func listenHooks(ctx context.Context, address, base string) (*hooks, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cmp.Or(address, "127.0.0.1:0"))
	if err != nil {
		return nil, err
	}
	h := &hooks{
		base: strings.TrimRight(cmp.Or(base, "http://"+listener.Addr().String()), "/"),
		done: make(chan struct{}), all: map[string]*hook{},
	}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: headerWithin}
	go func() {
		defer close(h.done)
		_ = h.server.Serve(listener) // its end is ours: close
	}()
	return h, nil
}

func (h *hooks) close() {
	_ = h.server.Close() // what comes now is late
	<-h.done
}

// open makes an address that answers its attempts with these statuses.
func (h *hooks) open(name string, answers ...int) *hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := &hook{url: h.base + "/" + name, answers: answers}
	h.all[name] = one
	return one
}

// ServeHTTP implements http.Handler.
func (h *hooks) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	h.mu.Lock()
	one := h.all[in.URL.Path[strings.LastIndexByte(in.URL.Path, '/')+1:]]
	h.mu.Unlock()
	body, err := io.ReadAll(io.LimitReader(in.Body, maxAnswer))
	if one == nil || err != nil {
		out.WriteHeader(http.StatusNotFound)
		return
	}
	out.WriteHeader(one.take(body))
}

// take keeps a delivery and returns how it is answered.
func (o *hook) take(body []byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, delivery{time.Now(), body})
	if n := len(o.got); n <= len(o.answers) {
		return o.answers[n-1]
	}
	return http.StatusOK
}

func (o *hook) deliveries() []delivery {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]delivery{}, o.got...)
}
