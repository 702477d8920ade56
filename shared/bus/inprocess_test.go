package bus_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

// stalling makes connections to a server like those within its process: pipes without a
// buffer. What the first one writes is read until stall ends, and not after.
type stalling struct {
	address string
	stall   context.Context //nolint:containedctx // it is asked by goroutines of InProcessConn
	made    int
}

func (s *stalling) InProcessConn() (net.Conn, error) {
	server, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, err
	}
	client, ours := net.Pipe()
	reads := context.Background()
	if s.made++; s.made == 1 {
		reads = s.stall
	}
	go func() {
		_, _ = io.Copy(ours, server)
		_ = ours.Close()
	}()
	go func() {
		defer server.Close()
		buffer := make([]byte, 4096)
		for reads.Err() == nil {
			n, err := ours.Read(buffer)
			if err != nil {
				return
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, server) // it gives the client up
	}()
	return client, nil
}

// nats.go holds its lock for a write, for a minute unless it is asked not to, and drops what
// could not be written.
func TestAServerInThisProcessThatReadsNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	cfg := b.Config()
	stall, begin := context.WithCancel(t.Context())
	cfg.InProcess = &stalling{address: strings.TrimPrefix(cfg.URL, "nats://"), stall: stall}
	nc, err := bus.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	back := nc.StatusChanged(nats.CONNECTED)
	begin()
	testenv.Within(t, 30*time.Second, "it is connected again", func() bool {
		_ = nc.Publish("x", []byte("while nothing is read"))
		select {
		case <-back:
			return true
		default:
			return false
		}
	})
	got, err := nc.SubscribeSync("x")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("x", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := got.NextMsg(testenv.Timeout); err != nil {
		t.Errorf("got %v, want what was published after", err)
	}
}
