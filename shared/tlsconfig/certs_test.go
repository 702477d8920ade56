package tlsconfig

import (
	"bytes"
	"crypto/tls"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/tlsconfig/certstest"
)

func TestOpenSaysWhatIsWrongWithTheFiles(t *testing.T) {
	a := certstest.New(t)
	cert, key := a.Issue("good")
	_, other := a.Issue("other")
	public := filepath.Join(t.TempDir(), "public.pem")
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(public, text, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		files Files
		says  string
	}{
		"no key":                     {Files{Cert: cert}, "go together"},
		"no certificate":             {Files{Key: key}, "go together"},
		"an authority alone":         {Files{ClientCA: a.CA()}, "go together"},
		"a key that is not there":    {Files{Cert: cert, Key: "nowhere.pem"}, "nowhere.pem: no such file"},
		"a certificate that is not":  {Files{Cert: "nowhere.pem", Key: key}, "nowhere.pem: no such file"},
		"the key of another":         {Files{Cert: cert, Key: other}, "private key does not match"},
		"a key for everybody":        {Files{Cert: cert, Key: public}, "anybody on this machine may read it (its mode is 644)"},
		"no authorities":             {Files{Cert: cert, Key: key, ClientCA: "nowhere.pem"}, "nowhere.pem: no such file"},
		"authorities that are a key": {Files{Cert: cert, Key: key, ClientCA: key}, "holds no certificate"},
	}
	for name, test := range tests {
		if s, err := Open(test.files, nil); s != nil || !errors.Is(err, ErrFiles) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, %v, want ErrFiles: %s", name, s, err, test.says)
		}
	}
	if s, err := Open(Files{}, nil); s != nil || err != nil {
		t.Errorf("no files: got %v, %v, want neither", s, err)
	}
}

// shaken is what the server showed, and whether both sides agreed.
func shaken(t *testing.T, server, client *tls.Config) (serial string, err error) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = conn.Write([]byte("x")) // the client sees whether it came
			_ = conn.Close()
		}
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), client)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_, err = io.ReadFull(conn, make([]byte, 1)) // TLS 1.3 refuses a client's certificate after the handshake
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String(), err
}

// clock is moved by hand.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func TestReplacedFilesAreShownAndSpoiltOnesAreNot(t *testing.T) {
	a := certstest.New(t)
	cert, key := a.Issue("own")
	var log bytes.Buffer
	s, err := Open(Files{Cert: cert, Key: key}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{at: time.Now()}
	s.now = c.now
	client, err := Client{CA: a.CA()}.Config()
	if err != nil {
		t.Fatal(err)
	}
	client.ServerName = "127.0.0.1"
	show := func() string {
		t.Helper()
		c.move(lookEvery)
		serial, err := shaken(t, s.Config(), client)
		if err != nil {
			t.Fatal(err)
		}
		return serial
	}
	first := show()
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := show(); got != first {
		t.Errorf("spoilt: got certificate %s, want still %s", got, first)
	}
	if show(); strings.Count(log.String(), "cannot be used") != 1 {
		t.Errorf("got the log\n%s\nwant one line that they cannot be used", log.String())
	}
	a.Issue("own")
	second := show()
	if second == first || s.Leaf().SerialNumber.String() != second {
		t.Errorf("replaced: got certificate %s, and %v to be shown, want another than %s", second, s.Leaf().SerialNumber, first)
	}
	a.IssueUntil("own", c.now().Add(time.Hour))
	if show() == second || !strings.Contains(log.String(), "ends soon") {
		t.Errorf("got the log\n%s\nwant a certificate that ends soon", log.String())
	}
}

func TestWhoIsLetIn(t *testing.T) {
	own, other := certstest.New(t), certstest.New(t)
	cert, key := own.Issue("server")
	clientCert, clientKey := own.Issue("client")
	foreignCert, foreignKey := other.Issue("client")
	tests := map[string]struct {
		ca     string // of those who may vouch for clients
		client Client
		oldest uint16 // the newest version that the client speaks
		in     bool
	}{
		"who knows the authority":       {"", Client{CA: own.CA()}, 0, true},
		"who knows another":             {"", Client{CA: other.CA()}, 0, false},
		"who knows the system's":        {"", Client{}, 0, false},
		"1.2":                           {"", Client{CA: own.CA()}, tls.VersionTLS12, true},
		"1.1":                           {"", Client{CA: own.CA()}, tls.VersionTLS11, false},
		"no certificate where one must": {own.CA(), Client{CA: own.CA()}, 0, false},
		"a good certificate":            {own.CA(), Client{CA: own.CA(), Cert: clientCert, Key: clientKey}, 0, true},
		"a stranger's":                  {own.CA(), Client{CA: own.CA(), Cert: foreignCert, Key: foreignKey}, 0, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := Open(Files{Cert: cert, Key: key, ClientCA: test.ca}, nil)
			if err != nil {
				t.Fatal(err)
			}
			client, err := test.client.Config()
			if err != nil {
				t.Fatal(err)
			}
			if client == nil {
				client = new(tls.Config)
			}
			client.ServerName = "127.0.0.1"
			if client.MaxVersion = test.oldest; test.oldest == tls.VersionTLS11 {
				client.MinVersion = tls.VersionTLS10
			}
			if _, err := shaken(t, s.Config(), client); (err == nil) != test.in {
				t.Errorf("got %v, want it let in: %v", err, test.in)
			}
		})
	}
}

func TestFlagsComeBeforeTheEnvironment(t *testing.T) {
	var c Client
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	c.Flags(flags.StringVar, map[string]string{"FLIGHTLINE_CA": "env", "FLIGHTLINE_CLIENT_CERT": "env", "FLIGHTLINE_CLIENT_KEY": "env"})
	if err := flags.Parse([]string{"--ca", "a", "--client-key", "k"}); err != nil {
		t.Fatal(err)
	}
	if want := (Client{CA: "a", Cert: "env", Key: "k"}); c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
}

func TestAClientsFilesAreCheckedToo(t *testing.T) {
	a := certstest.New(t)
	cert, key := a.Issue("client")
	for _, c := range []Client{{CA: "nowhere.pem"}, {CA: key}, {Cert: cert}, {Key: key}, {Cert: cert, Key: cert}} {
		if config, err := c.Config(); config != nil || !errors.Is(err, ErrFiles) {
			t.Errorf("%+v: got %v, %v, want ErrFiles", c, config, err)
		}
	}
	if config, err := (Client{}).Config(); config != nil || err != nil {
		t.Errorf("none: got %v, %v, want neither", config, err)
	}
}

func TestExposed(t *testing.T) {
	for address, want := range map[string]bool{
		"": false, "off": false, "127.0.0.1:4222": false, "localhost:0": false, "[::1]:1": false,
		"0.0.0.0:4222": true, ":4222": true, "[::]:80": true, "192.0.2.1:80": true, "nats.example:1": true,
	} {
		if got := Exposed(address); got != want {
			t.Errorf("%q: got %v, want %v", address, got, want)
		}
	}
}
