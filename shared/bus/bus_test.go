package bus_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

func TestConnectFailsAtOnceWithoutAServer(t *testing.T) {
	_, err := bus.Connect(bus.Config{URL: "nats://someone:secret@127.0.0.1:1"})
	if err == nil {
		t.Fatal("got a connection to a port nobody listens on")
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error tells the password: %v", err)
	}
}

func TestConnectWaitsForAServerIfAskedTo(t *testing.T) {
	b := testenv.NewServer(t)
	b.Stop()
	cfg := b.Config()
	cfg.Wait = true
	nc, err := bus.Connect(cfg)
	if err != nil {
		t.Fatalf("got %v, want a connection that is still to be made", err)
	}
	t.Cleanup(nc.Close)

	connected := nc.StatusChanged(nats.CONNECTED)
	if got := nc.Status(); got == nats.CONNECTED {
		t.Fatalf("got status %v while the server is away", got)
	}
	b.Start()
	<-connected
	if err := nc.Flush(); err != nil {
		t.Errorf("after the server came: %v", err)
	}
}

func TestConnectRefusesWhatIsNoAddressWithoutQuotingIt(t *testing.T) {
	for _, address := range []string{"nats://u:secret@ho st:4222", "nats://u:secret@", "nats://u:sec%ret@host", "foo://host", "http://host:4222"} {
		_, err := bus.Connect(bus.Config{URL: address})
		if !errors.Is(err, bus.ErrURL) {
			t.Errorf("%s: got %v, want ErrURL", address, err)
		}
	}
}

func TestWhyNoConnectionIsMade(t *testing.T) {
	b := testenv.NewServer(t)
	good := b.Config()
	if err := bus.Why(good); err != nil {
		t.Errorf("got %v, want nil while it can be made", err)
	}
	stranger := good
	stranger.User, stranger.Password = "stranger", "secret"
	if err := bus.Why(stranger); !errors.Is(err, nats.ErrAuthorization) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want ErrAuthorization", err)
	}
	away := bus.Config{URL: "nats://u:secret@127.0.0.1:1", Wait: true}
	if err := bus.Why(away); !errors.Is(err, nats.ErrNoServers) || !strings.Contains(err.Error(), "xxxxx@127.0.0.1:1") {
		t.Errorf("got %v, want ErrNoServers and the address without the password", err)
	}
}

func TestPublishFailsWhileTheServerIsAway(t *testing.T) {
	b := testenv.NewServer(t)
	away := b.NC.StatusChanged(nats.RECONNECTING)
	b.Stop()
	<-away
	if err := b.NC.Publish("x", nil); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("got %v, want ErrReconnectBufExceeded", err)
	}
}

func TestLogTellsOfGoingAndComingBackButNoPassword(t *testing.T) {
	b := testenv.NewServer(t)
	log := make(lines, 100)
	cfg := b.Config()
	cfg.Name = "watched"
	cfg.URL = strings.Replace(cfg.URL, "nats://", "nats://"+cfg.User+":"+cfg.Password+"@", 1)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	nc, err := bus.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)

	b.Stop()
	b.Start()
	for _, want := range []string{"nats disconnected", "nats reconnected"} {
		got := <-log
		if !strings.Contains(got, want) || !strings.Contains(got, "connection=watched") {
			t.Errorf("got log line %q, want %q of the connection watched", got, want)
		}
		if strings.Contains(got, cfg.Password) {
			t.Errorf("the log tells the password: %s", got)
		}
	}
}

// lines is a log whose lines a test waits for.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
