package bus_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
	"flightline/shared/testenv"
)

// An account whose storage is used up has room again once something is removed: what it
// refuses may be repeated.
func TestAFullAccountIsUnavailable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(`accounts { A { jetstream: {max_file: 1MB}, users: [{user: a, password: secret}] } }`), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := embedded.Start(t.Context(), embedded.Config{File: file, Dir: t.TempDir(), Listen: "127.0.0.1:0", User: "a", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	nc := testenv.Connect(t, bus.Config{URL: server.URL(), User: "a", Password: "secret"})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	part := make([]byte, 256<<10)
	var written, refused error
	for range 8 {
		if written = bus.Bind(nc).Append(within, "S", &nats.Msg{Subject: "s", Header: nats.Header{}, Data: part}, nuid.Next()); written != nil {
			_, refused = js.Publish(t.Context(), "s", part)
			break
		}
	}
	if !errors.Is(written, bus.ErrUnavailable) {
		t.Errorf("a write: got %v, want ErrUnavailable", written)
	}
	if err := bus.Unavailable(refused); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("a write of the jetstream package: got %v, want ErrUnavailable", err)
	}
}
