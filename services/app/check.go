package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/cli"
	"flightline/services/webhook"
	"flightline/shared/bus"
	"flightline/shared/pod"
	"flightline/shared/ratelimit"
	"flightline/streams"
)

// Of several settings that are wrong the first is reported (cmp.Or): people mend one.

// wrong says of a setting what it must be.
func wrong(flag string, given any, must string) error {
	if text, ok := given.(string); ok {
		given = strconv.Quote(text)
	}
	return &cli.UsageError{Err: fmt.Errorf("--%s %v: must be %s", flag, given, must)}
}

// addressOf checks the setting of a listener. The other values are fine too,
// and if there are some, so is "".
func addressOf(flag, given string, others ...string) error {
	if given == "" && len(others) > 0 || slices.Contains(others, given) {
		return nil
	}
	host, port, err := net.SplitHostPort(given)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || strings.ContainsAny(host, "\"'@/\\ \t\r\n") {
		return wrong(flag, given, strings.Join(append([]string{"an address like 127.0.0.1:8080"}, others...), " or "))
	}
	return nil
}

// namesOf checks the setting of names of hosts, with commas between them; "" is none.
func namesOf(flag, given, must string) error {
	for name := range strings.SplitSeq(given, ",") {
		if given != "" && (name == "" || strings.ContainsAny(name, ":/ *")) {
			return wrong(flag, given, must)
		}
	}
	return nil
}

// urlOf checks the setting of an address of these schemes; "" is none.
func urlOf(flag, given string, schemes ...string) error {
	if given == "" {
		return nil
	}
	u, err := url.Parse(given)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Host == "" && (u.Scheme != "unix" || u.Path == "") {
		// It is not quoted: it may hold a password.
		return &cli.UsageError{Err: fmt.Errorf("--%s: must be an address that begins with %s://", flag, strings.Join(schemes, ":// or "))}
	}
	return nil
}

// fileOf checks that a file can be read; "" is none.
func fileOf(flag, path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--%s: %w", flag, err)}
	}
	return f.Close()
}

// keyOf checks an API key, which it does not tell; "" is none.
func keyOf(flag, given string) error {
	const least, most = 8, 512
	if n := len(given); n != 0 && (n < least || n > most) {
		return &cli.UsageError{Err: fmt.Errorf("--%s: must have %d to %d bytes, not %d", flag, least, most, n)}
	}
	if strings.TrimSpace(given) != given || strings.ContainsFunc(given, unicode.IsControl) {
		return &cli.UsageError{Err: fmt.Errorf("--%s: must have no control characters, such as a line break, and no space at its ends: no header could bring it", flag)}
	}
	return nil
}

// maxPartitions is what an endpoint's record can name.
const maxPartitions = 1024

func partitionsInBounds(n int) error {
	if n < 1 || n > maxPartitions {
		return wrong("partitions", n, fmt.Sprintf("1 to %d", maxPartitions))
	}
	return nil
}

func replicasInBounds(n int) error {
	if n != 1 && n != 3 {
		return wrong("replicas", n, "1 or 3")
	}
	return nil
}

// upTo checks a time that may be 0.
func upTo(flag string, given, most time.Duration) error {
	if given < 0 || given > most {
		return wrong(flag, given, fmt.Sprintf("0 to %s", most))
	}
	return nil
}

func retentionInBounds(flag string, age time.Duration) error {
	if age < minRetention {
		return wrong(flag, age, "1h or more")
	}
	return nil
}

// check refuses what no connection can be made with.
func (n NATS) check() error {
	if _, err := bus.Redact(n.NATSURL); n.NATSURL != "" && err != nil {
		return &cli.UsageError{Err: errors.New("--nats-url: must be nats://HOST:PORT, or the same with tls, ws or wss, or several with commas between them")}
	}
	switch {
	case n.NATSPassword != "" && n.NATSUser == "":
		return &cli.UsageError{Err: errors.New("--nats-password: must have a --nats-user")}
	case (n.NATSCert == "") != (n.NATSKey == ""):
		return &cli.UsageError{Err: errors.New("--nats-cert and --nats-key go together")}
	case strings.ContainsAny(n.NATSInbox, "*> \t\r\n") || strings.HasPrefix(n.NATSInbox, ".") || strings.HasSuffix(n.NATSInbox, "."):
		return wrong("nats-inbox-prefix", n.NATSInbox, "a subject without wildcards, which does not end in a dot")
	}
	return cmp.Or(fileOf("nats-creds", n.NATSCreds), fileOf("nats-ca", n.NATSCA), fileOf("nats-cert", n.NATSCert), fileOf("nats-key", n.NATSKey))
}

// check refuses what would be taken for the default, or work at no webhook.
func (w Webhooks) check() error {
	switch {
	case w.WebhookTimeout <= 0 || w.WebhookTimeout > webhook.MaxTimeout:
		return wrong("webhook-timeout", w.WebhookTimeout, fmt.Sprintf("more than 0s, and %s at most", webhook.MaxTimeout))
	case w.WebhookMaxBody < 1:
		return wrong("webhook-max-body", w.WebhookMaxBody, "1 or more")
	}
	return urlOf("webhook-public-url", w.WebhookPublicURL, "http", "https")
}

// check refuses what no worker can be started with. The roles are those of the
// same process.
func (f Fleets) check(roles []string) error {
	starts, err := f.names()
	if err != nil {
		return err
	}
	if len(starts) > 0 && f.GatewayURL == "" && slices.Contains(roles, roleAutoscaler) && !slices.Contains(roles, roleGateway) {
		return &cli.UsageError{Err: fmt.Errorf("--gateway-url: must be the address of a gateway: this process has none, and the workers that the driver %s starts need one", starts[0])}
	}
	if f.FleetFolder == "" {
		return wrong("fleet-folder", f.FleetFolder, "a folder")
	}
	return cmp.Or(urlOf("gateway-url", f.GatewayURL, "http", "https"), f.Engine.check())
}

func (e Engine) check() error {
	if strings.ContainsAny(e.DockerNetwork, " \t\r\n/") {
		return wrong("docker-network", e.DockerNetwork, "bridge, host, none or the name of a network")
	}
	if pod.CheckCapabilities("", e.capabilities()) != nil {
		return wrong("docker-capabilities", e.DockerCapabilities, "capabilities like CHOWN,SETUID, or ALL")
	}
	if r := e.VolumeRoot; r != "" && (!filepath.IsAbs(r) || filepath.Clean(r) != r || r == "/") {
		return wrong("volume-root", r, "an absolute path without '..', and not /")
	}
	if info, err := os.Stat(e.ModelCache); e.ModelCache != "" && err == nil && !info.IsDir() {
		return wrong("model-cache-folder", e.ModelCache, "a folder")
	}
	if read := e.readGPUs(); read != nil {
		if _, err := read(); err != nil {
			return &cli.UsageError{Err: err}
		}
	}
	return urlOf("docker-host", e.DockerHost, "unix", "tcp", "http", "https")
}

// Values of --limits that are no path.
const (
	limitsDefault = "default"
	limitsOff     = "off"
)

// limitsOf reads the setting: the contract's limits, none (nil), or those in
// a file. JSON itself will do too, so that a variable can hold it.
func limitsOf(setting string) (ratelimit.Table, error) {
	switch setting {
	case limitsDefault:
		return ratelimit.Defaults(), nil
	case limitsOff:
		return nil, nil
	}
	text, name := []byte(setting), "--limits"
	if !strings.HasPrefix(strings.TrimSpace(setting), "{") {
		var err error
		if text, err = os.ReadFile(setting); err != nil {
			return nil, &cli.UsageError{Err: fmt.Errorf("--limits must be default, off or a file: %w", err)}
		}
		name = "--limits " + setting
	}
	table, err := ratelimit.Parse(text)
	if err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("%s: %w", name, err)}
	}
	return table, nil
}

// catalogOf reads the file of --price-catalog; nil without one.
func catalogOf(path string) (*pod.Catalog, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no catalogue knows nothing, and is no error
	}
	catalog, err := parseFile("price-catalog", path, pod.ParseCatalog)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return catalog, nil
}

// parseFile is what parse makes of the file that a flag names. Its errors name the flag.
func parseFile[T any](flag, path string, parse func([]byte) (T, error)) (v T, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return v, fmt.Errorf("--%s: %w", flag, err)
	}
	if v, err = parse(text); err != nil {
		return v, fmt.Errorf("--%s %s: %w", flag, path, err)
	}
	return v, nil
}

// partitionsOf is how many partitions there are once the wanted ones exist.
// Fewer must not be used: the deadlines of jobs in the rest would fire unseen.
func partitionsOf(ctx context.Context, js jetstream.JetStream, wanted int) (int, error) {
	for n := max(1, wanted); ; n++ {
		_, err := js.Stream(ctx, streams.Records(n)) // counted from 0
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return n, nil
		}
		if err != nil {
			return 0, fmt.Errorf("count partitions: %w", err)
		}
	}
}
