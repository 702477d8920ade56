package clients

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"flightline/services/cli"
	"flightline/shared/client"
	"flightline/shared/testenv"
	"flightline/shared/tlsconfig"
)

// env is a running `flightline dev`, and the binary.
type env struct {
	binary string
	dir    string // working directory of what runs here
	dev    *daemon
	api    *client.Client
	cli.Running
	places atomic.Int64
}

// shared is the one that tests share which stop nothing.
var shared = struct {
	once sync.Once
	dir  string
	env  *env
	err  error
}{}

// sharedSite starts it for the first test that asks.
func sharedSite(t *testing.T) *env {
	t.Helper()
	shared.once.Do(func() {
		//nolint:usetesting // so does its folder
		if shared.dir, shared.err = os.MkdirTemp("", "clients-"); shared.err != nil {
			return
		}
		shared.env, shared.err = startEnv(context.Background(), shared.dir)
	})
	if shared.err != nil {
		t.Fatalf("start: %v", shared.err)
	}
	return shared.env
}

// closeShared stops the shared env; the code is 1 if it does not stop well.
func closeShared() (code int) {
	if shared.env != nil {
		if err := shared.env.dev.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	_ = os.RemoveAll(shared.dir)
	return code
}

// startEnv builds the binary into dir and starts a dev without a demo there.
func startEnv(ctx context.Context, dir string, args ...string) (*env, error) {
	s := &env{binary: filepath.Join(dir, "flightline"), dir: dir}
	build := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "./services/flightline")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	var err error
	s.dev, err = s.start(ctx, append([]string{"dev", "--no-demo", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0"}, args...)...)
	if err != nil {
		return nil, err
	}
	if _, err := s.dev.line("flightline ready: "); err != nil {
		return nil, err
	}
	if s.Running, err = cli.FindRunning(filepath.Join(dir, cli.DefaultData)); err != nil {
		return nil, err
	}
	believed, err := tlsconfig.Client{CA: s.TLSCert}.Config()
	if err != nil {
		return nil, err
	}
	s.api, err = client.New(s.URL, s.APIKey, client.WithTLS(believed))
	return s, err
}

// start starts the binary in its folder, with none of the settings of
// the user who runs the tests.
func (s *env) start(ctx context.Context, args ...string) (*daemon, error) {
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Dir = s.dir
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "FLIGHTLINE_") && !strings.HasPrefix(entry, "NATS_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	return startDaemon(cmd)
}

// endpoint makes an endpoint for the test alone. It repeats a request that the server
// asks to send again, as it does while a busy disk holds up JetStream; the refused one
// may have made the endpoint.
func (s *env) endpoint(t *testing.T, spec client.EndpointSpec) (id string) {
	t.Helper()
	spec.ID = fmt.Sprintf("e%d", s.places.Add(1))
	testenv.Eventually(t, "endpoint "+spec.ID+" is made", func() bool {
		_, err := s.api.Endpoints().Create(t.Context(), spec)
		refused, ok := errors.AsType[*client.Error](err)
		switch {
		case ok && refused.Temporary():
			return false
		case ok && refused.Code == "endpoint_exists":
		case err != nil:
			t.Fatal(err)
		}
		return true
	})
	return spec.ID
}

// daemon is a process that stays up until it is stopped.
type daemon struct {
	cmd   *exec.Cmd
	lines chan string   // of its standard output
	ended chan struct{} // closed when it has ended, and err says how
	err   error
	mu    sync.Mutex
	said  bytes.Buffer // all it printed
}

func startDaemon(cmd *exec.Cmd) (*daemon, error) {
	d := &daemon{cmd: cmd, lines: make(chan string, 1000), ended: make(chan struct{})}
	cmd.Stderr = d
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		defer close(d.ended)
		for scan := bufio.NewScanner(io.TeeReader(stdout, d)); scan.Scan(); {
			select {
			case d.lines <- scan.Text():
			default: // nobody waits for so many
			}
		}
		_, _ = io.Copy(io.Discard, stdout)
		d.err = cmd.Wait()
	}()
	return d, nil
}

// Write keeps what the process prints.
func (d *daemon) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.said.Write(p)
}

func (d *daemon) output() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.said.String()
}

// line waits for a line of output that begins so, and returns its rest.
func (d *daemon) line(prefix string) (rest string, err error) {
	late := time.NewTimer(soon)
	defer late.Stop()
	for {
		select {
		case line := <-d.lines:
			if rest, found := strings.CutPrefix(line, prefix); found {
				return rest, nil
			}
		case <-d.ended:
			return "", fmt.Errorf("%v ended without the line %q:\n%s", d.cmd.Args, prefix, d.output())
		case <-late.C:
			return "", fmt.Errorf("%v: no line %q within %v:\n%s", d.cmd.Args, prefix, soon, d.output())
		}
	}
}

// stop sends SIGTERM and waits for an end with code 0.
func (d *daemon) stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.ended:
	case <-time.After(soon):
		d.kill()
		return fmt.Errorf("%v: no end within %v of SIGTERM:\n%s", d.cmd.Args, soon, d.output())
	}
	if d.err != nil {
		return fmt.Errorf("%v: %w\n%s", d.cmd.Args, d.err, d.output())
	}
	return nil
}

// kill ends the process as a power cut would. Killing an ended one does
// nothing.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
}
