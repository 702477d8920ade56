// Package certstest makes certificates for tests: an authority, and what it
// vouches for.
package certstest

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
	"testing"
	"time"
)

// Authority vouches for certificates, in a folder of the test.
type Authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// CA is the path of the authority's own certificate.
func (a *Authority) CA() string { return filepath.Join(a.dir, "ca.pem") }

// Paths are those of a certificate of this name and of its key.
func (a *Authority) Paths(name string) (cert, key string) {
	return filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+"-key.pem")
}

// Issue makes a certificate that both sides of a connection may show, for these
// hosts, or 127.0.0.1 if there are none. One of the same name is replaced.
func (a *Authority) Issue(name string, hosts ...string) (cert, key string) {
	a.t.Helper()
	return a.IssueUntil(name, time.Now().Add(24*365*time.Hour), hosts...)
}

// IssueUntil is Issue with the end of the certificate.
func (a *Authority) IssueUntil(name string, end time.Time, hosts ...string) (cert, key string) {
	a.t.Helper()
	if hosts == nil {
		hosts = []string{"127.0.0.1"}
	}
	c := &x509.Certificate{
		KeyUsage: x509.KeyUsageDigitalSignature, NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, host)
		}
	}
	a.sign(name, c)
	return a.Paths(name)
}

func (a *Authority) sign(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore = time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(24 * 365 * time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certPath, keyPath := a.Paths(name)
	a.put(certPath, "CERTIFICATE", der)
	a.put(keyPath, "PRIVATE KEY", secret)
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

// put replaces a file whole, as programs that renew certificates do.
func (a *Authority) put(path, kind string, der []byte) {
	a.t.Helper()
	err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}
