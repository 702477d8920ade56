package security

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/shared/tlsconfig"
	"flightline/shared/tlsconfig/certstest"
	"flightline/streams"
)

// shownBy is what a client that the authority has issued a certificate shows.
func shownBy(a *certstest.Authority) bus.TLS {
	cert, key := a.Issue("client")
	return bus.TLS{CA: a.CA(), Cert: cert, Key: key}
}

// With certificates in its configuration NATS lets in who shows one, and the
// roles do their work so; without one, or with another authority's, nobody.
func TestNATSOverTLSRefusesThePlainAndTheForeign(t *testing.T) {
	t.Parallel()
	own, other := certstest.New(t), certstest.New(t)
	cert, key := own.Issue("server")
	good := shownBy(own)
	g := newGuarded(t, "--tls-cert", cert, "--tls-key", key, "--tls-ca", own.CA())

	foreign := shownBy(other)
	foreign.CA = own.CA()
	distrusting := good
	distrusting.CA = other.CA()
	for name, shown := range map[string]bus.TLS{
		"plain": {}, "no certificate": {CA: own.CA()}, "another's certificate": foreign, "an authority that did not vouch": distrusting,
	} {
		nc, err := bus.Connect(bus.Config{URL: g.url, User: "api", Password: g.password(streams.RoleAPI), TLS: shown})
		if err == nil {
			nc.Close()
			t.Errorf("%s: got a connection", name)
		}
	}

	g.as(streams.RoleControl)
	g.Environ = append(g.Environ, "FLIGHTLINE_CREATE_STREAMS=true", "FLIGHTLINE_NATS_CA="+good.CA, "FLIGHTLINE_NATS_CERT="+good.Cert, "FLIGHTLINE_NATS_KEY="+good.Key,
		"FLIGHTLINE_BOOTSTRAP_KEY=an-administrator", "FLIGHTLINE_API_KEY=an-administrator")
	control := g.Start("serve", "control")
	g.Environ = append(g.Environ, "FLIGHTLINE_URL="+control.Line(program.Ready))
	g.OK("endpoint", "create", "own")
	g.as(streams.RoleWorker)
	w := g.Start("worker", "own", "--", "cat")
	w.Line(program.WorkerReady)
	for _, d := range []*program.Process{w, control} {
		d.Stop(program.StopWithin)
	}
	if got := g.violations(); len(got) > 0 {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
}

// The servers of a cluster that nats-config describes show each other
// certificates: streams with three copies can be made, and a peer that comes to a
// route without a certificate, or with a stranger's, is not let in.
func TestTheRoutesOfAClusterSpeakTLS(t *testing.T) {
	t.Parallel()
	own, other := certstest.New(t), certstest.New(t)
	cert, key := own.Issue("server")
	client, foreign := shownBy(own), shownBy(other)
	s := program.New(t)
	setup, routes := filepath.Join(s.Dir, "setup"), testenv.FreePorts(t, 3)
	s.OK("nats-config", "--dir", setup, "--cluster", strings.Join(routes, ","), "--tls-cert", cert, "--tls-key", key, "--tls-ca", own.CA())
	all, password := startNodes(s, setup, routes)
	within, cancel := context.WithTimeout(t.Context(), program.Soon)
	defer cancel()
	if err := all[0].WaitForLeader(within); err != nil {
		t.Fatalf("the servers do not find each other: %v", err)
	}
	nc := testenv.Connect(t, bus.Config{URL: all[0].URL(), User: "admin", Password: password, TLS: client})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s.Eventually("a stream with three copies is made", func() bool {
		try, cancel := context.WithTimeout(within, bus.CallTimeout) // a node without a leader does not answer
		defer cancel()
		_, err := js.CreateStream(try, jetstream.StreamConfig{Name: "COPIES", Replicas: 3})
		return err == nil
	})
	for name, shown := range map[string]struct {
		tlsconfig.Client
		in bool
	}{
		"one of the cluster": {tlsconfig.Client{CA: own.CA(), Cert: cert, Key: key}, true},
		"nobody":             {tlsconfig.Client{CA: own.CA()}, false},
		"a stranger":         {tlsconfig.Client{CA: own.CA(), Cert: foreign.Cert, Key: foreign.Key}, false},
	} {
		config, err := shown.Config()
		if err != nil {
			t.Fatal(err)
		}
		config.ServerName = "127.0.0.1"
		if got := shakesHands(t, routes[1], config); (got == nil) != shown.in {
			t.Errorf("%s at a route: got %v, want it let in: %v", name, got, shown.in)
		}
	}
}

// startNodes starts the servers of a cluster that nats-config described, and
// returns them with the administrator's password.
func startNodes(s *program.Env, setup string, routes []string) (all []*embedded.Server, password string) {
	t := s.T
	t.Helper()
	secret, err := os.ReadFile(filepath.Join(setup, "admin", "password"))
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(routes[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, route := range routes {
		// What differs on one machine: the name, and the ports.
		file := natsConf(s, setup, fmt.Sprintf("node-%d.conf", i), "$NATS_NAME", fmt.Sprint("node-", i), strconv.Quote("0.0.0.0:"+port), strconv.Quote(route))
		server, err := embedded.Start(t.Context(), embedded.Config{File: file, Dir: t.TempDir(), Listen: "127.0.0.1:0", User: "admin", Password: string(secret)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Stop)
		all = append(all, server)
	}
	return all, string(secret)
}

// shakesHands reports whether the server goes on after the handshake: it says
// so by its PING or by waiting, and ends at once if it does not like what it saw.
func shakesHands(t *testing.T, address string, config *tls.Config) error {
	t.Helper()
	plain, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_ = plain.SetDeadline(time.Now().Add(time.Second))
	conn := tls.Client(plain, config)
	if err := conn.Handshake(); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return nil
	}
	return err
}
