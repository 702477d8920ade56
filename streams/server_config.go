package streams

import (
	"cmp"
	"fmt"
	"net"
	"strings"
)

// ServerConfig is what the configuration of a nats-server is made from.
type ServerConfig struct {
	// Config has the partitions, which the permissions name.
	Config
	// Passwords are those of the roles, best as bcrypt hashes; a role without
	// one cannot come in. A password that begins with $ and a letter is the name of an
	// environment variable of the server.
	Passwords map[Role]string
	// SystemPassword is that of the user system, who may look at the server itself.
	// "" means that there is no such user.
	SystemPassword string
	// Endpoint is the one of the role worker. "" or "*" means any.
	Endpoint string
	// Store is the folder of the streams. "" means /data.
	Store string
	// Listen is the address for clients. "" means 127.0.0.1:4222.
	Listen string
	// TLS are the files of a certificate, of its key, and of the authority of
	// the others: all of them, for clients and between servers, must show one.
	// nil means no TLS.
	TLS *ServerTLS
	// Cluster is the addresses of all servers, as host:port. Each listens at the port
	// of the first. nil means alone.
	Cluster []string
	// ClusterPassword is what servers show each other. It cannot be the name of a
	// variable, as it is also a part of addresses, where the server expands none.
	ClusterPassword string
}

// healthAddress is where a server answers health checks, of its own machine only.
const healthAddress = "127.0.0.1:8222"

// ServerTLS names files, as PEM.
type ServerTLS struct{ Cert, Key, CA string }

// String is the text of the configuration. Every write is fsynced before it is
// acknowledged. There is no user without a password, and a client that gives
// none is refused.
func (s ServerConfig) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Made by `flightline nats-config` from the table in streams/permissions.go.")
	name := "flightline"
	if s.Cluster != nil {
		name = "$NATS_NAME" // each server has its own
	}
	line("server_name: %s", name)
	line("listen: %q", cmp.Or(s.Listen, "127.0.0.1:4222"))
	line("http: %q", healthAddress)
	line("max_payload: 1MB")
	line("jetstream { store_dir: %q, sync_interval: always }", cmp.Or(s.Store, "/data"))
	if s.TLS != nil {
		line("tls { %s, timeout: 5 }", s.TLS)
	}
	if s.Cluster != nil {
		s.cluster(line)
	}
	line("accounts {")
	s.accounts(line)
	if s.SystemPassword != "" {
		line("  SYSTEM { users: [ { user: system, password: %s } ] }", quoted(s.SystemPassword))
	}
	line("}")
	if s.SystemPassword != "" {
		line("system_account: SYSTEM")
	}
	return b.String()
}

// String is the inside of a block tls.
func (t ServerTLS) String() string {
	return fmt.Sprintf("cert_file: %q, key_file: %q, ca_file: %q, verify: true", t.Cert, t.Key, t.CA)
}

func (s ServerConfig) cluster(line func(string, ...any)) {
	line("cluster {")
	line("  name: flightline")
	_, port, _ := net.SplitHostPort(s.Cluster[0])
	line("  listen: %q", net.JoinHostPort("0.0.0.0", port))
	line("  authorization { user: route, password: %s }", quoted(s.ClusterPassword))
	if s.TLS != nil {
		line("  tls { %s, timeout: 5 }", s.TLS)
	}
	line("  routes: [")
	for _, address := range s.Cluster {
		// What a server shows the others is in the address, and nowhere else.
		line("    \"nats-route://route:%s@%s\"", s.ClusterPassword, address)
	}
	line("  ]")
	line("}")
}

func list(subjects []string) string {
	all := make([]string, 0, len(subjects))
	for _, s := range subjects {
		all = append(all, fmt.Sprintf("%q", s))
	}
	return strings.Join(all, ", ")
}

func deny(subjects []string) string {
	if len(subjects) == 0 {
		return ""
	}
	return ", deny: [" + list(subjects) + "]"
}

// quoted is a password as the configuration has it: a variable is not quoted.
func quoted(password string) string {
	if strings.HasPrefix(password, "$") && !strings.HasPrefix(password, "$2") {
		return password
	}
	return fmt.Sprintf("%q", password)
}
