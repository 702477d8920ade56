package metrics

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	headerTimeout = 5 * time.Second
	idleTimeout   = 2 * time.Minute
	// writeTimeout bounds an answer, with the time that its numbers take.
	writeTimeout = time.Minute
	stopTimeout  = time.Second
)

// Handler answers a scrape. A collector that fails does not keep the others
// from being told.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, Registry: nil})
}

// Serve answers /metrics on the listener, which it closes, until ctx ends. A
// request whose Host allow refuses gets 400.
func (r *Registry) Serve(ctx context.Context, l net.Listener, allow func(host string) bool) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", onlyFor(allow, r.Handler()))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, WriteTimeout: writeTimeout}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(within) != nil {
			_ = server.Close() // what still reads has had its time
		}
	}()
	err := server.Serve(l)
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}

// onlyFor refuses requests whose Host is not allowed.
func onlyFor(allow func(host string) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !allow(req.Host) {
			http.Error(w, "this host is not served here: use a loopback address, or allow the name with --host", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, req)
	})
}
