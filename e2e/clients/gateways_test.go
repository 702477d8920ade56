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

// freeAddress is an address that nobody listens on now.
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

// A gateway stops, and one is killed, while a generator that blocks its event
// loop, or a loop that does not, is at work. Nothing answers meanwhile.
func TestAGatewayThatRestartsInMidStreamLosesNothing(t *testing.T) {
	t.Parallel()
	for handler, aggregated := range map[string]bool{"generator": false, "aggregate": true} {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, script)
			address := freeAddress(t)
			gateway := b.startGateway(address)
			b.start(handler)
			id := b.submit(input{"chunks": 9, "wait_at": []int{3, 6}})
			for i, end := range []func(*daemon) error{(*daemon).stop, killed} {
				b.noted("waits", id, i+1)
				if err := end(gateway); err != nil {
					t.Error(err)
				}
				gateway = b.startGateway(address)
				b.letGoAt(3 * (i + 1))
			}
			want := numbered(9)
			if got := strings.Join(b.chunks(id), ","); got != want {
				t.Errorf("got chunks %s, want all nine once, in order", got)
			}
			if !aggregated {
				want = ""
			}
			if j := b.completes(id, "["+want+"]"); j.Retries != 0 {
				t.Errorf("got %d retries, want 0: the worker never went away", j.Retries)
			}
			b.ran(id, 1)
			b.counts(1, 0)
		})
	}
}

func TestAGatewayThatRestartsInMidJobLosesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*daemon) error{"stopped": (*daemon).stop, "killed": killed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, script)
			address := freeAddress(t)
			gateway := b.startGateway(address)
			b.start("plain") // blocks its event loop
			id := b.submit(input{"wait": true, "n": 1})
			b.noted("start", id, 1)
			if err := end(gateway); err != nil {
				t.Error(err)
			}
			b.startGateway(address)
			b.letGo()
			if j := b.completes(id, `{"n":1,"wait":true}`); j.Retries != 0 {
				t.Errorf("got %d retries, want 0: the worker never went away", j.Retries)
			}
			b.ran(id, 1)
			b.counts(1, 0)
		})
	}
}

func killed(d *daemon) error { d.kill(); return nil }

// numbered are the chunks {"n":0}, {"n":1} and so on, with commas between.
func numbered(count int) string {
	chunks := make([]string, count)
	for n := range chunks {
		chunks[n] = fmt.Sprintf(`{"n":%d}`, n)
	}
	return strings.Join(chunks, ",")
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
		if got, want := strings.Join(b.chunks(id), ","), numbered(20); got != want {
			t.Errorf("got chunks %s, want %s", got, want)
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
