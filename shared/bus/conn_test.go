package bus_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

// stuffed passes connections on to an address. Once stalled is closed it reads nothing more
// of the first one, as a path that is cut while much is under way.
func stuffed(t *testing.T, stalled <-chan struct{}, address string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for made := 0; ; made++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				_ = client.Close()
				return
			}
			t.Cleanup(func() { _, _ = client.Close(), server.Close() })
			go func() { _, _ = io.Copy(client, server) }()
			if made > 0 {
				go func() { _, _ = io.Copy(server, client) }()
				continue
			}
			go func() {
				buffer := make([]byte, 4096)
				for {
					n, err := client.Read(buffer)
					if err != nil {
						return
					}
					select {
					case <-stalled:
						return
					default:
					}
					if _, err := server.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func TestAServerThatTakesNothingIsGivenUpAlsoInTheMidstOfAWrite(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	cfg := b.Config()
	stalled := make(chan struct{})
	cfg.URL = "nats://" + stuffed(t, stalled, strings.TrimPrefix(cfg.URL, "nats://"))
	nc, err := bus.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	changed := nc.StatusChanged(nats.RECONNECTING, nats.CONNECTED)
	close(stalled)
	go func() {
		part := make([]byte, 1<<20)
		for nc.IsConnected() { // until the buffers of the system are full
			_ = nc.Publish("x", part)
		}
	}()
	began := time.Now()
	for range 2 {
		<-changed
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("got a new connection after %v, want some seconds", took)
	}
}
