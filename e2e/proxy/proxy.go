// Package proxy starts the proxies of docs/proxy.
package proxy

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"flightline/e2e/require"
	"flightline/shared/testenv"
)

// programs are the arguments of each proxy before the path of its file.
var programs = map[string][]string{
	"nginx":   {"-g", "daemon off; master_process off; pid nginx.pid; error_log stderr;", "-p", ".", "-c"},
	"haproxy": {"-db", "-f"},
}

// Start starts a proxy, nginx or haproxy, with a file of docs/proxy, in which it replaces words
// (old and new, in turn), and returns its address once it listens. It ends with the test, which
// shows what it printed if it failed. Without the program the test is skipped.
func Start(t *testing.T, name, file string, words ...string) (address string) {
	t.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		require.Skip(t, "proxy", err.Error())
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "proxy", file))
	if err != nil {
		t.Fatal(err)
	}
	address = testenv.FreePorts(t, 1)[0]
	words = append(words, "127.0.0.1:8000", address)
	dir := t.TempDir()
	text = []byte(strings.NewReplacer(words...).Replace(string(text)))
	if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil { //nolint:gosec // a test names the file
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, append(programs[name], file)...) //nolint:gosec // as above
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // it was killed with the test's context
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, &said)
		}
	})
	testenv.Eventually(t, name+" listens", func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return address
}
