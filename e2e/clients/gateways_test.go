package clients

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"flightline/shared/job"
)

// startGateway starts a gateway in a process of its own, at this address.
func (b *bench) startGateway(address string) *daemon {
	b.Helper()
	d, err := b.s.start(context.Background(), "serve", "gateway", "--listen", address,
		"--nats-url", b.s.NATSURL, "--nats-user", b.s.NATSUser, "--nats-password", b.s.NATSPassword)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(d.kill)
	ready, err := d.line("flightline ready: ")
	if err != nil {
		b.Fatal(err)
	}
	b.gateway = ready
	return d
}

// freeAddress is one that nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	var listening net.ListenConfig
	l, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestAGatewayThatRestartsInMidJobLosesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*daemon) error{
		"stopped": (*daemon).stop,
		"killed":  func(d *daemon) error { d.kill(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, script)
			address := freeAddress(t)
			gateway := b.startGateway(address)
			b.start("aggregate") // asyncio: a generator that blocks would not hear that its connection was closed
			id := b.submit(input{"chunks": 8, "wait_at": 4})
			b.noted("waits", id, 1)
			if err := end(gateway); err != nil {
				t.Error(err)
			}
			b.startGateway(address)
			b.letGo()
			want := `{"n":0},{"n":1},{"n":2},{"n":3},{"n":4},{"n":5},{"n":6},{"n":7}`
			if got := strings.Join(b.chunks(id), ","); got != want {
				t.Errorf("got chunks %s, want all eight", got)
			}
			if j := b.completes(id, "["+want+"]"); j.Retries != 0 {
				t.Errorf("got %d retries, want 0: the worker never went away", j.Retries)
			}
			b.ran(id, 1)
			b.counts(1, 0)
		})
	}
}

// Takes, pings, chunks and results go to one gateway and the other by turns.
func TestTwoGatewaysBehindAlternatingAddresses(t *testing.T) {
	t.Parallel()
	b := newBench(t, script)
	b.startGateway("127.0.0.1:0")
	var turn atomic.Int64
	addresses := []*url.URL{parsed(t, b.s.URL), parsed(t, b.gateway)}
	balancer := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(addresses[turn.Add(1)%2]) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
	})
	defer balancer.Close()
	b.gateway = balancer.URL
	w := b.start("generator")
	defer w.kill() // before the balancer waits for its polls
	for range 3 {
		id := b.submit(input{"chunks": 20})
		var want []string
		for n := range 20 {
			want = append(want, fmt.Sprintf(`{"n":%d}`, n))
		}
		if got := b.chunks(id); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("got chunks %v, want %v", got, want)
		}
		if j := b.until(id, job.Completed); j.Retries != 0 {
			t.Errorf("got %d retries, want 0", j.Retries)
		}
		b.ran(id, 1)
	}
	b.counts(3, 0)
}

func parsed(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
