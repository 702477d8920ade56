package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/streams"
)

// authority makes certificates for this machine.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	return a
}

// issue makes a certificate that both sides of a connection may show.
func (a *authority) issue(name string) {
	a.t.Helper()
	a.sign(name, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
}

func (a *authority) sign(name string, c, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if parent == nil {
		parent, signer = c, key
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + "-key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// shown is what a client of this authority shows.
func (a *authority) shown() bus.TLS {
	return bus.TLS{CA: a.file("ca.pem"), Cert: a.file("client.pem"), Key: a.file("client-key.pem")}
}

// With certificates in its configuration NATS lets in who shows one, and the
// roles do their work so; without one, or with another authority's, nobody.
func TestNATSOverTLSRefusesThePlainAndTheForeign(t *testing.T) {
	own, other := newAuthority(t), newAuthority(t)
	own.issue("server")
	own.issue("client")
	other.issue("client")
	g := newGuarded(t, "--tls-cert", own.file("server.pem"), "--tls-key", own.file("server-key.pem"), "--tls-ca", own.file("ca.pem"))

	foreign := other.shown()
	foreign.CA = own.file("ca.pem")
	distrusting := own.shown()
	distrusting.CA = other.file("ca.pem")
	for name, shown := range map[string]bus.TLS{
		"plain": {}, "no certificate": {CA: own.file("ca.pem")}, "another's certificate": foreign, "an authority that did not vouch": distrusting,
	} {
		nc, err := bus.Connect(bus.Config{URL: g.url, User: "api", Password: g.password(streams.RoleAPI), TLS: shown})
		if err == nil {
			nc.Close()
			t.Errorf("%s: got a connection", name)
		}
	}

	g.as(streams.RoleControl)
	g.env = append(g.env, "FLIGHTLINE_STREAMS=make", "FLIGHTLINE_NATS_CA="+own.file("ca.pem"), "FLIGHTLINE_NATS_CERT="+own.file("client.pem"), "FLIGHTLINE_NATS_KEY="+own.file("client-key.pem"),
		"FLIGHTLINE_BOOTSTRAP_KEY=an-administrator", "FLIGHTLINE_API_KEY=an-administrator")
	control := g.start("serve", "control")
	g.env = append(g.env, "FLIGHTLINE_URL="+control.line(ready))
	g.ok("endpoint", "create", "own")
	g.as(streams.RoleWorker)
	w := g.start("worker", "own", "--", "cat")
	w.line(workerReady)
	for _, d := range []*daemon{w, control} {
		d.stop(stopWithin)
	}
	if got := g.log.violations(); len(got) > 0 {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
}
