package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/testenv"
	"flightline/streams"
)

// lines hands over what is logged.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default: // nobody looks any more
	}
	return len(p), nil
}

// servedWith is what a process with these settings of NATS ends with, and
// what it logs until a line holds until.
func servedWith(t *testing.T, n NATS, until string, flags ...string) (logged string, err error) {
	t.Helper()
	cfg, err := parsed(nil, append(flags, "--listen", "127.0.0.1:0", "--metrics-listen", "off")...)
	if err != nil {
		t.Fatal(err)
	}
	cfg.NATS = n
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	heard, ended := make(lines, 100), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, cfg, "", []string{roleRecorder, roleControl}, io.Discard, slog.New(slog.NewTextHandler(heard, nil)), nil)
	}()
	for {
		select {
		case line := <-heard:
			logged += line
			if until != "" && strings.Contains(line, until) {
				cancel()
				return logged, <-ended
			}
		case err := <-ended:
			return logged, err
		}
	}
}

func TestNATSThatIsAwayIsNamedWithTheReason(t *testing.T) {
	logged, err := servedWith(t, NATS{NATSURL: "nats://u:hush@127.0.0.1:1"}, "127.0.0.1:1: nats: no servers available")
	if err == nil || strings.Contains(logged+err.Error(), "hush") || strings.Contains(logged, "outbound buffer") {
		t.Errorf("got %v and %s", err, logged)
	}
	if logged == "" || !strings.Contains(err.Error(), "127.0.0.1:1: nats: no servers available") {
		t.Errorf("got %v, want the address and the reason", err)
	}
}

func TestAWrongPasswordForNATSIsSaidAtOnce(t *testing.T) {
	b := testenv.NewServer(t)
	_, err := servedWith(t, NATS{NATSURL: b.Config().URL, NATSUser: "api", NATSPassword: "hush"}, "")
	if !errors.Is(err, nats.ErrAuthorization) || !strings.Contains(err.Error(), "Authorization Violation") || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v, want ErrAuthorization", err)
	}
}

// A start that makes a lost stream again is not silent about it.
func TestAStreamThatWasLostIsLogged(t *testing.T) {
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := b.JS.DeleteStream(t.Context(), streams.Events); err != nil {
		t.Fatal(err)
	}
	logged, _ := servedWith(t, NATS{NATSURL: b.Config().URL, NATSUser: b.Config().User, NATSPassword: b.Config().Password}, "it was made again")
	if !strings.Contains(logged, "level=ERROR") || !strings.Contains(logged, "stream="+streams.Events) || !strings.Contains(logged, "are lost") {
		t.Errorf("got %s, want what is lost", logged)
	}
}

// A NATS without JetStream answers no request of it, and the client says no more than that.
func TestANATSWithoutJetStreamIsSaidToBeOne(t *testing.T) {
	p := plan{nc: testenv.NewServer(t).NC}
	err := p.explainOutage(fmt.Errorf("count partitions: %w", nats.ErrNoResponders))
	if !errors.Is(err, nats.ErrNoResponders) || !strings.Contains(err.Error(), "nats-server has it with -js") {
		t.Errorf("got %v, want how to switch it on", err)
	}
}

// Who starts `serve` for the first time, and gives no key, cannot make one either.
func TestAStartWithoutAnyKeyIsAWarning(t *testing.T) {
	b := testenv.NewServer(t)
	n := NATS{NATSURL: b.Config().URL, NATSUser: b.Config().User, NATSPassword: b.Config().Password}
	const warning, active = "there is no API key yet", "msg=active"
	if logged, _ := servedWith(t, n, active); !strings.Contains(logged, warning) {
		t.Errorf("without a key: got %s, want a warning", logged)
	}
	for _, flags := range [][]string{{"--bootstrap-key", "a-good-key"}, nil} { // then it is there
		if logged, _ := servedWith(t, n, active, flags...); !strings.Contains(logged, active) || strings.Contains(logged, warning) {
			t.Errorf("with one: got %s, want no warning", logged)
		}
	}
}
