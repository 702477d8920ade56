package dev

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"

	"flightline/shared/certs"
	"flightline/shared/certs/certstest"
)

// at is a listener at an address that nobody listens at.
type at struct {
	net.Listener
	address string
}

func (a at) Addr() net.Addr {
	tcp, err := net.ResolveTCPAddr("tcp", a.address)
	if err != nil {
		panic(err)
	}
	return tcp
}

// Plain HTTP where others reach it is warned of, and nothing else is.
func TestAPlainListenerThatOthersReachIsToldInTheLog(t *testing.T) {
	a := certstest.New(t)
	cert, key := a.Issue("server")
	shown, err := certs.Open(certs.Files{Cert: cert, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		doors doors
		want  int
	}{
		"on this machine":   {doors{requests: at{address: "127.0.0.1:80"}, scrapes: at{address: "[::1]:81"}}, 0},
		"requests":          {doors{requests: at{address: "0.0.0.0:80"}}, 1},
		"scrapes as well":   {doors{requests: at{address: "[::]:80"}, scrapes: at{address: "192.0.2.1:81"}}, 2},
		"both, secured":     {doors{requests: at{address: "0.0.0.0:80"}, scrapes: at{address: "0.0.0.0:81"}, shown: shown}, 0},
		"metrics are plain": {doors{requests: at{address: "127.0.0.1:80"}, scrapes: at{address: "0.0.0.0:81"}}, 1},
	}
	for name, test := range tests {
		var log bytes.Buffer
		test.doors.secure(slog.New(slog.NewTextHandler(&log, nil)))
		if got := strings.Count(log.String(), "plain HTTP where other machines may reach it"); got != test.want {
			t.Errorf("%s: got %d warnings, want %d\n%s", name, got, test.want, log.String())
		}
	}
}

func TestLocal(t *testing.T) {
	for address, want := range map[string]bool{"": true, "127.0.0.1:4222": true, "localhost:0": true, "[::1]:1": true, "0.0.0.0:4222": false, ":4222": false, "nats.example:1": false} {
		if got := local(address); got != want {
			t.Errorf("%q: got %v, want %v", address, got, want)
		}
	}
}

// An address has a name that the certificate is for, as far as it is of this
// machine.
func TestTheAddressHasANameOfTheCertificate(t *testing.T) {
	a := certstest.New(t)
	for _, test := range []struct{ host, address, want string }{
		{"127.0.0.1", "0.0.0.0:80", "https://127.0.0.1:80"},
		{"localhost", "127.0.0.1:80", "https://localhost:80"},
		{"flightline.example", "127.0.0.1:80", "https://127.0.0.1:80"},
		{"localhost", "192.0.2.1:80", "https://192.0.2.1:80"},
	} {
		cert, key := a.Issue("server", test.host)
		shown, err := certs.Open(certs.Files{Cert: cert, Key: key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := doors{requests: at{address: test.address}, shown: shown}
		if got := d.url(); got != test.want {
			t.Errorf("%s for %s: got %s, want %s", test.address, test.host, got, test.want)
		}
	}
}
