package embedded_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus/embedded"
)

func TestStartRefusesToListenWithoutCredentials(t *testing.T) {
	dir := t.TempDir()
	cluster := &embedded.Cluster{Listen: "127.0.0.1:0"}
	tests := map[string]struct {
		cfg  embedded.Config
		want error
	}{
		"nowhere to store":       {embedded.Config{}, embedded.ErrNoDir},
		"listens to anyone":      {embedded.Config{Dir: dir, Listen: "127.0.0.1:0"}, embedded.ErrNoCredentials},
		"a user but no password": {embedded.Config{Dir: dir, Listen: "127.0.0.1:0", User: "u"}, embedded.ErrNoCredentials},
		"clusters with anyone":   {embedded.Config{Dir: dir, Cluster: cluster}, embedded.ErrNoCredentials},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := embedded.Start(t.Context(), test.cfg)
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if s != nil {
				s.Stop()
			}
		})
	}
}

func TestWithoutListenNothingListensAndConnectWorks(t *testing.T) {
	s := start(t, embedded.Config{Dir: t.TempDir()})
	if got := s.URL(); got != "" {
		t.Errorf("got URL %q, want none", got)
	}
	connect(t, s)
}

// A subject is of one job: to keep those of earlier ones costs each new subscription a look at
// all of them.
func TestTheServerKeepsNoSubjectsOfTheJobsBefore(t *testing.T) {
	s := start(t, embedded.Config{Dir: t.TempDir()})
	nc := dial(t, s)
	sub, err := nc.SubscribeSync("moved.*.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"moved.a.1", "moved.b.1"} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.NextMsg(time.Minute); err != nil || m.Subject != subject {
			t.Fatalf("got %v, %v, want %s", m, err, subject)
		}
	}
	if n, err := s.CachedSubjects(); err != nil || n != 0 {
		t.Errorf("got %d cached subjects, %v, want none", n, err)
	}
}

func TestAListeningServerLetsInOnlyWhoKnowsThePassword(t *testing.T) {
	s := start(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", User: "u", Password: "p"})
	if _, err := nats.Connect(s.URL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without a password: got %v, want ErrAuthorization", err)
	}
	nc, err := nats.Connect(s.URL(), nats.UserInfo("u", "p"))
	if err != nil {
		t.Fatalf("with the password: %v", err)
	}
	nc.Close()
	connect(t, s)
}

func TestRestartKeepsWhatWasStored(t *testing.T) {
	for _, always := range []bool{false, true} {
		cfg := embedded.Config{Dir: filepath.Join(t.TempDir(), "store"), SyncAlways: always}
		first := start(t, cfg)
		js := connect(t, first)
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), "s", []byte("kept")); err != nil {
			t.Fatal(err)
		}
		first.Stop()

		stream, err := connect(t, start(t, cfg)).Stream(t.Context(), "S")
		if err != nil {
			t.Fatal(err)
		}
		msg, err := stream.GetMsg(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(msg.Data); got != "kept" {
			t.Errorf("SyncAlways %v: got %q, want kept", always, got)
		}
	}
}

func TestStoreIsForItsOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	start(t, embedded.Config{Dir: dir})
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != fs.FileMode(0o700) {
		t.Errorf("got mode %v, want 0700", got)
	}
}

func TestOneStoreHasOneServer(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: t.TempDir()}
	first := start(t, cfg)
	if _, err := embedded.Start(t.Context(), cfg); !errors.Is(err, embedded.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	first.Stop()
	start(t, cfg)
}

func TestStartReturnsWhatTheServerFindsWrong(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, listen := range []string{taken.Addr().String(), "127.0.0.1", "127.0.0.1:x"} {
		cfg := embedded.Config{Dir: t.TempDir(), Listen: listen, User: "u", Password: "p"}
		if s, err := embedded.Start(t.Context(), cfg); err == nil {
			s.Stop()
			t.Errorf("%s: got a server, want an error", listen)
		}
	}
}

func TestStartReturnsAtOnceIfTheAddressForOtherNodesIsTaken(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s, err := embedded.Start(t.Context(), embedded.Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", User: "u", Password: "p", ServerName: "n",
		Cluster: &embedded.Cluster{Name: "c", Listen: taken.Addr().String(), Routes: []string{taken.Addr().String()}},
	})
	if err == nil {
		s.Stop()
		t.Fatal("got a server, want an error")
	}
	if !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %q, want it to name the cause", err)
	}
}

func TestADoneContextGivesUpTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := embedded.Start(ctx, embedded.Config{Dir: t.TempDir()})
	if err == nil { // it was ready before anyone looked at ctx
		s.Stop()
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestALoneServerNeedsNoLeader(t *testing.T) {
	s := start(t, embedded.Config{Dir: t.TempDir()})
	if err := s.WaitForLeader(t.Context()); err != nil {
		t.Error(err)
	}
}

func start(t testing.TB, cfg embedded.Config) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func connect(t testing.TB, s *embedded.Server) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(dial(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func dial(t testing.TB, s *embedded.Server) *nats.Conn {
	t.Helper()
	nc, err := s.Connect(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
