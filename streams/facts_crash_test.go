package streams_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A server that can be killed is another process: this test binary again,
// told by these flags to be one.
var (
	serveDir    = flag.String("serve", "", "be a server with its store in this `folder` until standard input ends")
	serveListen = flag.String("serve-listen", "127.0.0.1:0", "`address` of that server")
)

const user, password = "facts", "facts-password"

func TestMain(m *testing.M) {
	testenv.SetParallel()
	if *serveDir == "" {
		m.Run()
		return
	}
	ctx, cancel := contextWithin()
	defer cancel()
	server, err := embedded.Start(ctx, embedded.Config{Dir: *serveDir, Listen: *serveListen, User: user, Password: password})
	if err != nil {
		panic(err)
	}
	defer server.Stop()
	_, _ = os.Stdout.WriteString(strings.TrimPrefix(server.URL(), "nats://") + "\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// serve starts a server in a process of its own and returns its address.
func serve(t *testing.T, dir, listen string) (address string, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-serve", dir, "-serve-listen", listen)
	if _, err := cmd.StdinPipe(); err != nil { // it ends with us
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	return strings.TrimSpace(line), kill
}

// killable is a server in a process of its own, and a connection to it.
type killable struct {
	dir, address string
	kill         func()
	nc           *nats.Conn
}

// newKillable starts a server on an empty store.
func newKillable(t *testing.T) (*killable, jetstream.JetStream) {
	t.Helper()
	k := &killable{dir: t.TempDir()}
	k.address, k.kill = serve(t, k.dir, "127.0.0.1:0")
	var err error
	if k.nc, err = bus.Connect(bus.Config{URL: "nats://" + k.address, User: user, Password: password}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.nc.Close)
	js, err := jetstream.New(k.nc)
	if err != nil {
		t.Fatal(err)
	}
	return k, js
}

// restart kills the server, has its store damaged unless damage is nil, starts it
// again, and waits for the connection.
func (k *killable) restart(t *testing.T, damage func(dir string) error) {
	t.Helper()
	back := k.nc.StatusChanged(nats.CONNECTED)
	k.kill()
	if damage != nil {
		if err := damage(k.dir); err != nil {
			t.Fatal(err)
		}
	}
	_, k.kill = serve(t, k.dir, k.address)
	<-back
}

// F11 and F13: a SIGKILL loses nothing that was acknowledged, neither jobs nor
// the fact that they are handed out; but how often each was delivered may be
// forgotten, so that number decides nothing.
func TestF11ASIGKILLForgetsDeliveriesAndLosesNoJob(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and waits for leases")
	}
	t.Parallel()
	const n, lease = 100, 2 * time.Second
	server, js := newKillable(t)
	e := endpointOf(t, "ep")
	e.Lease = lease
	if err := streams.ApplyEndpoint(t.Context(), js, streams.Config{}, e); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		publish(t.Context(), t, js, message(streams.JobSubject(e.ID, job.Normal, job.ID(fmt.Sprint(i))), ""))
	}
	for range n {
		fetch(t, js, e.ID) // held, never acknowledged
	}

	server.restart(t, nil)

	again, forgotten := map[string]bool{}, 0
	for len(again) < n {
		m := fetch(t, js, e.ID)
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		if !again[m.Subject()] && meta.NumDelivered == 1 {
			forgotten++
		}
		again[m.Subject()] = true
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d second deliveries were counted as first", forgotten, n)
}

// What gives way to a newer message on its subject leaves no mark on the disk:
// with the newer one removed, a SIGKILL brings it back. shared/queue knows such
// ghosts (ADR 0013); if this fails, the server has learnt better.
func TestWhatGaveWayComesBackOnceTheNewerIsRemovedAndTheServerKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	server, js := newKillable(t)
	if err := streams.Apply(t.Context(), js, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	record := func(id job.ID) string { return streams.RecordSubject(0, "ep", id, 1) }
	publish(t.Context(), t, js, message(record("before"), "stays"))
	publish(t.Context(), t, js, message(record("a"), "old"))
	newer := publish(t.Context(), t, js, message(record("a"), "new"))
	publish(t.Context(), t, js, message(record("after"), "stays"))
	s, err := js.Stream(t.Context(), streams.Records(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(t.Context(), newer); err != nil {
		t.Fatal(err)
	}

	server.restart(t, nil)

	m, err := s.GetLastMsgForSubject(t.Context(), record("a"))
	if err != nil || string(m.Data) != "old" {
		t.Errorf("got %v, %v; want the old one back", m, err)
	}
}
