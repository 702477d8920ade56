package bus_test

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
	"flightline/shared/testenv"
	"flightline/shared/tlsconfig/certstest"
)

// What refuses a connection refuses it again and again, until somebody changes something.
// The log must say what it is, in few lines.
func TestARefusedConnectionIsOneLineOfTheLogAMinute(t *testing.T) {
	t.Parallel()
	own, other := certstest.New(t), certstest.New(t)
	shown := func(a *certstest.Authority) *tls.Config {
		pair, err := tls.LoadX509KeyPair(a.Issue("server"))
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	before, foreign, demanding := shown(own), shown(other), shown(own)
	demanding.ClientAuth = tls.RequireAnyClientCert
	for name, tt := range map[string]struct {
		password string
		tls      *tls.Config
		want     string
	}{
		"another password":                    {"after", before, "Authorization Violation"},
		"a certificate of another authority":  {"before", foreign, "signed by unknown authority"},
		"a certificate that is now asked for": {"before", demanding, "certificate required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := embedded.Config{Dir: t.TempDir(), Listen: testenv.FreePorts(t, 1)[0], User: "api", Password: "before", TLS: before}
			server, err := embedded.Start(t.Context(), settings)
			if err != nil {
				t.Fatal(err)
			}
			log := make(lines, 100)
			nc := testenv.Connect(t, bus.Config{URL: server.URL(), User: settings.User, Password: settings.Password, TLS: bus.TLS{CA: own.CA()}, Log: slog.New(slog.NewTextHandler(log, nil))})
			server.Stop()
			settings.Password, settings.TLS = tt.password, tt.tls
			if server, err = embedded.Start(t.Context(), settings); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Stop)
			began, made := time.Now(), nc.Stats().Reconnects
			testenv.Eventually(t, "three refusals", func() bool { return nc.Stats().Reconnects >= made+3 })
			if took := time.Since(began); took < 2*time.Second {
				t.Errorf("got three refusals within %v, want a pause between two", took)
			}
			nc.Close()
			var logged []string
			for range len(log) {
				if line := <-log; !strings.Contains(line, "nats disconnected") && !strings.Contains(line, "nats cannot be reached") {
					logged = append(logged, line)
				}
			}
			if len(logged) != 1 || !strings.Contains(logged[0], tt.want) || !strings.Contains(logged[0], server.URL()) {
				t.Errorf("got %q, want one line with %q and the address", logged, tt.want)
			}
		})
	}
}
