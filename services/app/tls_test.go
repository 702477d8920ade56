package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"flightline/services/cli"
	"flightline/shared/tlsconfig"
	"flightline/shared/tlsconfig/certstest"
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
	shown, err := tlsconfig.Open(tlsconfig.Files{Cert: cert, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		listeners listeners
		want      int
	}{
		"on this machine":   {listeners{requests: at{address: "127.0.0.1:80"}, scrapes: at{address: "[::1]:81"}}, 0},
		"requests":          {listeners{requests: at{address: "0.0.0.0:80"}}, 1},
		"scrapes as well":   {listeners{requests: at{address: "[::]:80"}, scrapes: at{address: "192.0.2.1:81"}}, 2},
		"both, secured":     {listeners{requests: at{address: "0.0.0.0:80"}, scrapes: at{address: "0.0.0.0:81"}, shown: shown}, 0},
		"metrics are plain": {listeners{requests: at{address: "127.0.0.1:80"}, scrapes: at{address: "0.0.0.0:81"}}, 1},
	}
	for name, test := range tests {
		var log bytes.Buffer
		test.listeners.secure(slog.New(slog.NewTextHandler(&log, nil)))
		if got := strings.Count(log.String(), "plain HTTP where other machines may reach it"); got != test.want {
			t.Errorf("%s: got %d warnings, want %d\n%s", name, got, test.want, log.String())
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
		shown, err := tlsconfig.Open(tlsconfig.Files{Cert: cert, Key: key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := listeners{requests: at{address: test.address}, shown: shown}
		if got := d.url(); got != test.want {
			t.Errorf("%s for %s: got %s, want %s", test.address, test.host, got, test.want)
		}
	}
}

// A driver's workers are not sent where they cannot come in.
func TestDriversWhoseWorkersCannotReachOurOwnGatewayAreRefused(t *testing.T) {
	a := certstest.New(t)
	ours, ourKey := a.Issue("ours")
	public, publicKey := a.Issue("public", "flightline.example")
	const told, away = " --gateway-url https://flightline.example", " --nats-url nats://127.0.0.1:1"
	for name, test := range map[string]struct{ line, says string }{
		"a public name": {"all --drivers process --tls-cert " + public + " --tls-key " + publicKey, "would dial https://127.0.0.1:"},
		"asked for a certificate": {
			"gateway autoscaler --drivers docker --tls-cert " + ours + " --tls-key " + ourKey + " --tls-client-ca " + a.CA(),
			"the driver docker starts have none, and --tls-client-ca asks for one",
		},
		"another gateway":                {"all --drivers process --tls-cert " + public + " --tls-key " + publicKey + told, ""},
		"another one, without asking":    {"all --drivers process --tls-cert " + ours + " --tls-key " + ourKey + " --tls-client-ca " + a.CA() + told, ""},
		"our own name":                   {"all --drivers process --tls-cert " + ours + " --tls-key " + ourKey, ""},
		"no driver":                      {"all --tls-cert " + public + " --tls-key " + publicKey + " --tls-client-ca " + a.CA(), ""},
		"nobody who would start workers": {"gateway --drivers process --tls-cert " + public + " --tls-key " + publicKey, ""},
	} {
		t.Run(name, func(t *testing.T) {
			roles, settings, _ := strings.Cut(test.line, " --")
			cfg, err := parsed(nil, strings.Fields("--listen 127.0.0.1:0 --metrics-listen off --"+settings+away)...)
			if err != nil {
				t.Fatal(err)
			}
			cfg.FleetFolder = t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			heard := make(lines, 100)
			ended := make(chan error, 1)
			go func() {
				ended <- Serve(ctx, cfg, "", strings.Fields(roles), io.Discard, slog.New(slog.NewTextHandler(heard, nil)), nil)
			}()
			for {
				select {
				case line := <-heard:
					if strings.Contains(line, "NATS is not ready") { // it has begun
						cancel()
						heard = nil
					}
				case err := <-ended:
					_, usage := errors.AsType[*cli.UsageError](err)
					if usage != (test.says != "") || usage && (!strings.Contains(err.Error(), "--gateway-url: must be") || !strings.Contains(err.Error(), test.says)) {
						t.Errorf("got %v, want a UsageError: %v, with %q", err, test.says != "", test.says)
					}
					return
				}
			}
		})
	}
}
