package security

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/e2e/require"
	"flightline/shared/testenv/program"
)

// clientAt is an HTTP client with an address of its own, as other machines have one.
func clientAt(t *testing.T, address string) *http.Client {
	t.Helper()
	local := &net.TCPAddr{IP: net.ParseIP(address)}
	probe, err := net.ListenTCP("tcp", local)
	if err != nil {
		require.Skip(t, "loopback", err.Error())
	}
	_ = probe.Close()
	dialer := &net.Dialer{LocalAddr: local}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}, Timeout: program.Soon}
}

// Idle connections without a key, more than the process may open files, from one
// address: a job of another address runs, and the process lives.
func TestIdleConnectionsTakeNoServerDown(t *testing.T) {
	t.Parallel()
	const files, connections = 256, 300
	other := clientAt(t, "127.0.0.2")
	_, d, url, metrics := devWithFiles(t, files)
	for i := range connections {
		address := strings.TrimPrefix(url, "http://")
		if i%2 == 1 {
			address = metrics
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v2/echo/runsync", strings.NewReader(`{"input":{"n":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "key-of-an-administrator")
	resp, err := other.Do(req)
	if err != nil {
		t.Fatalf("a job of another client: %v\n%s", err, d.Said())
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"COMPLETED"`) {
		t.Errorf("a job of another client: got %d %s, %v, want 200 and COMPLETED", resp.StatusCode, body, err)
	}
	d.Stop(program.StopWithin)
}

// The same at the NATS port, where each that the server closes is opened again.
func TestIdleNATSConnectionsTakeNoServerDown(t *testing.T) {
	t.Parallel()
	const files, connections = 256, 300
	s, d, url, _ := devWithFiles(t, files)
	text, err := os.ReadFile(filepath.Join(s.Dir, ".flightline", "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	var running struct {
		NATSURL string `json:"natsUrl"`
	}
	program.Decode(t, string(text), &running)
	var flood sync.WaitGroup
	done, opening := make(chan struct{}), make(chan struct{}, 8)
	var greeted sync.WaitGroup
	for range connections {
		greeted.Add(1)
		flood.Go(func() {
			idle(strings.TrimPrefix(running.NATSURL, "nats://"), opening, done, sync.OnceFunc(greeted.Done))
		})
	}
	greeted.Wait()
	defer func() { close(done); flood.Wait() }()
	for range 20 {
		status, text, err := call(t, program.Soon, http.MethodPost, url+"/v2/echo/runsync", adminKey, input(300_000)) // in parts
		if err != nil || status != http.StatusOK || !strings.Contains(text, `"COMPLETED"`) {
			t.Fatalf("a job meanwhile: got %d %.200s, %v, want 200 and COMPLETED\n%s", status, text, err, d.Said())
		}
	}
	if said := d.Said(); strings.Contains(said, "too many open files") {
		t.Errorf("the log has:\n%s", said)
	}
}

// idle holds a connection without a word until done, and opens another one when the
// server closes it; greeted is called at the server's first answer to each. No more
// connections than opening has room for wait for that answer: a server has to take
// one before it can refuse it, so more at a time could use up its files for a moment
// (docs/security.md).
func idle(address string, opening chan struct{}, done <-chan struct{}, greeted func()) {
	for {
		opening <- struct{}{}
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_, _ = conn.Read(make([]byte, 1))
		}
		<-opening
		greeted()
		if err == nil {
			closed := make(chan struct{})
			go func() { defer close(closed); _, _ = io.Copy(io.Discard, conn) }()
			select {
			case <-closed:
			case <-done:
			}
			_ = conn.Close()
			<-closed
		}
		select {
		case <-done:
			return
		case <-time.After(time.Second):
		}
	}
}

// Receivers that hang, nearly as many as the process may open files: jobs go on.
func TestReceiversThatHangTakeNoServerDown(t *testing.T) {
	t.Parallel()
	const files, receivers = 256, 240
	s, d, url, _ := devWithFiles(t, files)
	var called atomic.Int64
	for range receivers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				called.Add(1)
				go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }() // until dev ends
			}
		}()
		body := fmt.Appendf(nil, `{"input":{"n":1},"webhook":"http://%s/"}`, l.Addr())
		status, text, err := call(t, program.Soon, http.MethodPost, url+"/v2/echo/runsync", adminKey, body)
		if err != nil || status != http.StatusOK || !strings.Contains(text, `"COMPLETED"`) {
			t.Fatalf("a job with a webhook: got %d %.200s, %v, want 200 and COMPLETED\n%s", status, text, err, d.Said())
		}
	}
	s.Eventually("receivers are called", func() bool { return called.Load() >= files/8 })
	if said := d.Said(); strings.Contains(said, "too many open files") {
		t.Errorf("%d receivers were called; the log has:\n%s", called.Load(), said)
	}
}

// devWithFiles starts a dev that may open so many files, and waits for the end of its first
// job: then its endpoint has its queue. metrics is a host and port.
func devWithFiles(t *testing.T, files int) (s *program.Env, d *program.Process, url, metrics string) {
	t.Helper()
	s = program.New(t)
	s.Environ = append(s.Environ, "FLIGHTLINE_API_KEY="+adminKey, "FLIGHTLINE_METRICS_LISTEN=127.0.0.1:0")
	d = s.StartCommand(s.Command("/bin/sh", "-c", fmt.Sprintf("ulimit -n %d && exec %s dev", files, s.Binary)))
	metrics = strings.TrimSuffix(strings.TrimPrefix(d.Line("flightline metrics: "), "http://"), "/metrics")
	url = d.Line(program.Ready)
	d.Line("first job ")
	return s, d, url, metrics
}
