// Package tlsconfig makes TLS of files in PEM: what a server shows, whom a client
// believes. It knows no protocol.
package tlsconfig

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
)

// ErrFiles reports files that are no TLS: one is missing or cannot be read, the
// key is not the certificate's, or anybody may read it. The text says which.
var ErrFiles = errors.New("TLS")

// Files are the paths of what a server shows, and asks for. The zero value is
// no TLS.
type Files struct {
	// Cert is the certificate, followed by those between it and the authority,
	// and Key its key, both or neither. The key must not be readable by all
	// users of the machine.
	Cert, Key string
	// ClientCA are the authorities that may vouch for clients: each must show a
	// certificate then. "" means that they need none.
	ClientCA string
}

const (
	// lookEvery is how long the files are taken for unchanged.
	lookEvery = time.Second
	// endsSoon is when the end of a certificate is worth a warning.
	endsSoon = 14 * 24 * time.Hour
	// worldReadable is a mode that lets everybody read.
	worldReadable = 0o004
)

// Server is what a server shows: what the files hold, also after they were
// replaced.
type Server struct {
	files Files
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex
	looked time.Time
	seen   []os.FileInfo // as they were when last read, well or not
	config *tls.Config
}

// Open reads the files, or returns ErrFiles. It returns nil if they name no
// certificate. log gets later changes; nil means silence.
func Open(files Files, log *slog.Logger) (*Server, error) {
	switch {
	case files == Files{}:
		return nil, nil //nolint:nilnil // no TLS is no error
	case files.Cert == "" || files.Key == "":
		return nil, fmt.Errorf("%w: a certificate and its key go together", ErrFiles)
	}
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	s := &Server{files: files, log: log, now: time.Now}
	s.looked, s.seen = s.now(), s.stat()
	var err error
	if s.config, err = files.load(); err != nil {
		return nil, err
	}
	s.warn()
	return s, nil
}

// Config is for a listener. Each connection gets what the files hold then: they
// are looked at when a client comes, once a second at most. Files that cannot
// be used change nothing and are logged once, so the order in which two are
// replaced does not matter. TLS is 1.2 or newer.
func (s *Server) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil },
	}
}

// Leaf is the certificate that is shown.
func (s *Server) Leaf() *x509.Certificate {
	return s.current().Certificates[0].Leaf
}

func (s *Server) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.looked) >= lookEvery {
		s.looked = now
		s.reload()
	}
	return s.config
}

// reload reads the files if they are others than before.
func (s *Server) reload() {
	there := s.stat()
	if slices.EqualFunc(there, s.seen, same) {
		return
	}
	s.seen = there
	config, err := s.files.load()
	if err != nil {
		s.log.Error("changed TLS files cannot be used, the old ones go on", "err", err)
		return
	}
	s.config = config
	s.log.Info("TLS files read again", "cert", s.files.Cert, "ends", config.Certificates[0].Leaf.NotAfter)
	s.warn()
}

// warn logs a certificate that ends soon.
func (s *Server) warn() {
	leaf := s.config.Certificates[0].Leaf
	if leaf.NotAfter.Sub(s.now()) < endsSoon {
		s.log.Warn("the TLS certificate ends soon", "cert", s.files.Cert, "ends", leaf.NotAfter)
	}
}

// stat returns what the files are; nil for a file that cannot be read.
func (s *Server) stat() []os.FileInfo {
	var all []os.FileInfo
	for _, path := range []string{s.files.Cert, s.files.Key, s.files.ClientCA} {
		info, _ := os.Stat(path) // load says what is wrong with it
		all = append(all, info)
	}
	return all
}

// same reports whether a file, nil if it cannot be read, was not replaced or changed.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// load reads and checks the files.
func (f Files) load() (*tls.Config, error) {
	info, err := os.Stat(f.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: key: %w", ErrFiles, err)
	}
	if runtime.GOOS != "windows" && info.Mode()&worldReadable != 0 {
		return nil, fmt.Errorf("%w: key %s: anybody on this machine may read it (its mode is %o): chmod o-rwx", ErrFiles, f.Key, info.Mode().Perm())
	}
	pair, err := keyPair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if f.ClientCA == "" {
		return config, nil
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.ClientCAs, err = pool(f.ClientCA)
	return config, err
}

func keyPair(cert, key string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return pair, fmt.Errorf("%w: certificate %s and key %s: %w", ErrFiles, cert, key, err)
	}
	return pair, nil
}

// pool is the certificates in a file.
func pool(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: authorities: %w", ErrFiles, err)
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%w: authorities: %s holds no certificate in PEM", ErrFiles, path)
	}
	return p, nil
}
