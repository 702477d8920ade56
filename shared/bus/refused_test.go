package bus_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
	"flightline/shared/testenv"
)

// A password that was changed is refused again and again, until the process is started with
// the new one.
func TestARefusedPasswordIsOneLineOfTheLog(t *testing.T) {
	t.Parallel()
	settings := embedded.Config{Dir: t.TempDir(), Listen: testenv.FreePorts(t, 1)[0], User: "api", Password: "before"}
	server, err := embedded.Start(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	log, refusals := make(lines, 100), make(chan error, 100)
	nc := testenv.Connect(t, bus.Config{URL: server.URL(), User: settings.User, Password: settings.Password, Log: slog.New(slog.NewTextHandler(log, nil))})
	reported := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, s *nats.Subscription, err error) {
		reported(nc, s, err)
		refusals <- err
	})
	server.Stop()
	settings.Password = "after"
	if server, err = embedded.Start(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	began := time.Now()
	for range 3 {
		if err := <-refusals; !errors.Is(err, nats.ErrAuthorization) {
			t.Fatalf("got %v, want ErrAuthorization", err)
		}
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("got three refusals within %v, want a pause between two", took)
	}
	nc.Close()
	logged := 0
	for range len(log) {
		if strings.Contains(<-log, "nats error") {
			logged++
		}
	}
	if logged != 1 {
		t.Errorf("got %d lines of three refusals, want one", logged)
	}
}
