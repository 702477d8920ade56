package app

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/bcrypt"

	"flightline/services/cli"
	"flightline/shared/disk"
	"flightline/shared/endpoint"
	"flightline/streams"
)

// NATSConfig are the settings of `flightline nats-config`.
type NATSConfig struct {
	Dir        string `flag:"dir" env:"FLIGHTLINE_NATS_CONFIG_DIR" help:"folder to put the configuration and the passwords in; those that are there are kept. Without one the configuration is printed, with names of variables for passwords"`
	Partitions int    `flag:"partitions" env:"FLIGHTLINE_PARTITIONS" default:"1" help:"as for serve: the permissions name each"`
	Endpoint   string `flag:"endpoint" env:"FLIGHTLINE_NATS_ENDPOINT" default:"*" help:"the one endpoint of the user worker, or * for all"`
	Listen     string `flag:"listen" env:"FLIGHTLINE_NATS_LISTEN" default:"127.0.0.1:4222" help:"address at which the server listens for its clients; 0.0.0.0:4222 for those of other machines and containers"`
	Store      string `flag:"store" env:"FLIGHTLINE_NATS_STORE" default:"/data" help:"folder of the streams, as the server of NATS sees it"`
	Cluster    string `flag:"cluster" env:"FLIGHTLINE_NATS_CLUSTER" help:"addresses of all servers of a cluster, host:port with commas between them; each listens at the port of the first; none for one server. It needs --dir"`
	TLSCert    string `flag:"tls-cert" env:"FLIGHTLINE_NATS_SERVER_CERT" help:"path of the server's certificate, as the server sees it; clients and other servers must then show one too"`
	TLSKey     string `flag:"tls-key" env:"FLIGHTLINE_NATS_SERVER_KEY" help:"path of its key"`
	TLSCA      string `flag:"tls-ca" env:"FLIGHTLINE_NATS_SERVER_CA" help:"path of the CA certificates that sign those of clients and servers"`
	APIKey     string `flag:"api-key" env:"FLIGHTLINE_API_KEY" secret:"yes" help:"API key of the administrator, to be put in the folder in place of the key there; without it that stays, and the first is random. 8 to 512 bytes without control characters and without a space at its ends"`
}

// NATSConfigCommand is `flightline nats-config`.
func NATSConfigCommand(environment map[string]string) *cobra.Command {
	cfg := new(NATSConfig)
	c := &cobra.Command{
		Use: "nats-config", Short: "Make the configuration of a NATS server with a user for each role",
		Long: "Make the configuration of a NATS server: a user for each role, who may do what\n" +
			"the role needs and no more, JetStream that fsyncs each write, and nobody without\n" +
			"a password.\n\n" +
			"With --dir it writes DIR/nats/nats.conf, which holds hashes only, and for each\n" +
			"role DIR/ROLE/password; DIR/control/api-key is the administrator's API key, and\n" +
			"DIR/key/api-key a copy for who needs it and no password. It may be repeated:\n" +
			"what is there stays, but for the API key where --api-key or FLIGHTLINE_API_KEY\n" +
			"gives another. Without --dir it prints a configuration, for one server alone,\n" +
			"that takes passwords from variables like NATS_PASSWORD_API.",
	}
	configure(c, environment, cfg, func(cmd *cobra.Command, _ []string) error {
		s, err := cfg.server()
		if err != nil {
			return err
		}
		if cfg.Dir == "" && s.Cluster != nil {
			return &cli.UsageError{Err: errors.New("--cluster: must have a --dir: servers show each other a password that is in an address, where NATS expands no variable")}
		}
		if cfg.Dir == "" {
			_, err = io.WriteString(cmd.OutOrStdout(), s.String())
			return err
		}
		return cfg.write(s, cmd.OutOrStdout())
	})
	return c
}

func (c NATSConfig) check() error {
	errs := []error{partitionsInBounds(c.Partitions), addressOf("listen", c.Listen), keyOf("api-key", c.APIKey)}
	if c.Endpoint != "*" && !endpoint.ValidID(c.Endpoint) {
		errs = append(errs, wrong("endpoint", c.Endpoint, "the id of an endpoint, or *"))
	}
	if c.Cluster != "" {
		for address := range strings.SplitSeq(c.Cluster, ",") {
			errs = append(errs, addressOf("cluster", cmp.Or(address, ",")))
		}
	}
	return cmp.Or(errs...)
}

// server is the configuration with variables for passwords.
func (c NATSConfig) server() (streams.ServerConfig, error) {
	if err := c.check(); err != nil {
		return streams.ServerConfig{}, err
	}
	s := streams.ServerConfig{
		Config: streams.Config{Partitions: c.Partitions}, Passwords: map[streams.Role]string{}, SystemPassword: "$NATS_PASSWORD_SYSTEM",
		Endpoint: c.Endpoint, Listen: c.Listen, Store: c.Store,
	}
	for _, r := range streams.Roles() {
		s.Passwords[r] = "$NATS_PASSWORD_" + strings.ToUpper(string(r))
	}
	switch given := c.TLSCert != "" || c.TLSKey != "" || c.TLSCA != ""; {
	case given && (c.TLSCert == "" || c.TLSKey == "" || c.TLSCA == ""):
		return s, &cli.UsageError{Err: errors.New("--tls-cert, --tls-key and --tls-ca go together")}
	case given:
		s.TLS = &streams.ServerTLS{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSCA}
	}
	if c.Cluster != "" {
		s.Cluster = strings.Split(c.Cluster, ",")
	}
	return s, nil
}

// write puts everything into the folder.
func (c NATSConfig) write(s streams.ServerConfig, out io.Writer) error {
	path := filepath.Join(c.Dir, "nats", "nats.conf")
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read the configuration: %w", err)
	}
	for _, r := range streams.Roles() {
		if s.Passwords[r], err = c.hashed(string(r), before); err != nil {
			return err
		}
	}
	if s.SystemPassword, err = c.hashed("system", before); err != nil {
		return err
	}
	if s.Cluster != nil {
		if s.ClusterPassword, err = c.secret("nats", "route-password", ""); err != nil {
			return err
		}
	}
	key, err := c.secret(string(streams.RoleControl), "api-key", c.APIKey)
	if err != nil {
		return err
	}
	if err := put(filepath.Join(c.Dir, "key", "api-key"), key); err != nil {
		return err
	}
	if err := put(path, s.String()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "wrote %s\nthe administrator's API key is in %s\n", path, filepath.Join(c.Dir, string(streams.RoleControl), "api-key"))
	return err
}

// bcryptHash is a hash as bcrypt writes it.
var bcryptHash = regexp.MustCompile(`\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}`)

// hashed is the hash of a user's password: that of the configuration before, if it has
// the same password. The password is random and long, so that a slow hash would protect
// nothing.
func (c NATSConfig) hashed(user string, before []byte) (string, error) {
	password, err := c.secret(user, "password", "")
	if err != nil {
		return "", err
	}
	for _, hash := range bcryptHash.FindAll(before, -1) {
		if bcrypt.CompareHashAndPassword(hash, []byte(password)) == nil {
			return string(hash), nil
		}
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		return "", fmt.Errorf("hash the password of %s: %w", user, err)
	}
	return string(hash), nil
}

// secret is what the file holds; what is given, or something random if nothing is there,
// is put there.
func (c NATSConfig) secret(folder, name, given string) (string, error) {
	path := filepath.Join(c.Dir, folder, name)
	kept, err := os.ReadFile(path)
	if text := strings.TrimSpace(string(kept)); text != "" && (given == "" || given == text) {
		return text, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	if given == "" {
		given = rand.Text()
	}
	return given, put(path, given)
}

// put writes a file that only its owner may read, all of it or nothing.
func put(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	if err := disk.ReplaceFile(path, []byte(text)); err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	return nil
}
