package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"flightline/e2e/need"
)

// dockerEngine is a Docker engine of the test's own, which it may kill. It has no
// network of containers but the host's.
type dockerEngine struct {
	t      *testing.T
	dir    string
	bridge string
	cmd    *exec.Cmd
	said   *os.File
	client *client.Client
}

// newEngine starts one, or says why there can be none.
func newEngine(t *testing.T) *dockerEngine {
	t.Helper()
	for _, program := range []string{"dockerd", "ip"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			need.Skip(t, "docker", "only root can start an engine, and "+program+" has to be installed")
		}
	}
	dir, err := os.MkdirTemp("/tmp", "fl-engine-") //nolint:usetesting // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// One with --bridge none would remove docker0, which the machine's engine needs.
	e := &dockerEngine{t: t, dir: dir, bridge: fmt.Sprintf("fl%d", os.Getpid())}
	if out, err := exec.Command("ip", "link", "add", e.bridge, "type", "bridge").CombinedOutput(); err != nil {
		need.Skip(t, "docker", fmt.Sprintf("no bridge can be made: %v %s", err, out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "link", "delete", e.bridge).CombinedOutput(); err != nil {
			t.Errorf("delete the bridge: %v %s", err, out)
		}
	})
	if e.said, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.said.Close() })
	if e.client, err = client.New(client.WithHost(e.address())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.client.Close() })
	t.Cleanup(e.end)
	e.start()
	return e
}

func (e *dockerEngine) address() string { return "unix://" + filepath.Join(e.dir, "sock") }

// start starts it, and waits until it answers. What a killed one left it finds.
func (e *dockerEngine) start() {
	e.t.Helper()
	at := func(name string) string { return filepath.Join(e.dir, name) }
	// A killed one leaves the ids of dead processes, which may be zombies for
	// long where nobody reaps them: it would wait for them.
	_ = os.Remove(at("pid"))
	_ = os.Remove(at("run/containerd/containerd.pid"))
	// Ended by end, and killed on purpose.
	e.cmd = exec.Command("dockerd", "--data-root", at("data"), "--exec-root", at("run"), "--pidfile", at("pid"), "--host", e.address(),
		"--bridge", e.bridge, "--iptables=false", "--ip-forward=false", "--storage-driver", "vfs")
	e.cmd.Stdout, e.cmd.Stderr = e.said, e.said
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	for end := time.Now().Add(fleetWithin); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err := e.client.Ping(ctx, client.PingOptions{})
		cancel()
		if err == nil {
			return
		}
		if e.cmd.Process.Signal(syscall.Signal(0)) != nil || time.Now().After(end) {
			text, _ := os.ReadFile(e.said.Name())
			need.Skip(e.t, "docker", fmt.Sprintf("no engine can be started: %v\n%s", err, text))
		}
		<-time.After(100 * time.Millisecond)
	}
}

// kill ends the engine as a crash would; the containers go on.
func (e *dockerEngine) kill() {
	e.t.Helper()
	if err := e.cmd.Process.Kill(); err != nil {
		e.t.Fatal(err)
	}
	_ = e.cmd.Wait()
}

// end removes all containers and ends the engine.
func (e *dockerEngine) end() {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	all, err := e.client.ContainerList(ctx, client.ContainerListOptions{All: true})
	for _, c := range all.Items {
		_, gone := e.client.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true})
		err = errors.Join(err, gone)
	}
	if err != nil {
		e.t.Errorf("remove containers: %v", err)
	}
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(soon, func() { _ = e.cmd.Process.Kill() })
	defer late.Stop()
	_ = e.cmd.Wait()
}

// image makes one of this file alone, which it runs.
func (e *dockerEngine) image(name, file string) {
	e.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		e.t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err = w.WriteHeader(&tar.Header{Name: "worker", Mode: 0o755, Size: int64(len(text))})
	if err == nil {
		_, err = w.Write(text)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		e.t.Fatal(err)
	}
	answer, err := e.client.ImageImport(e.t.Context(), client.ImageImportSource{Source: &layer, SourceName: "-"}, name,
		client.ImageImportOptions{Changes: []string{`ENTRYPOINT ["/worker"]`}})
	if err != nil {
		e.t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, answer)
	if err = errors.Join(err, answer.Close()); err != nil {
		e.t.Fatal(err)
	}
}

// containers are the pods of those that run, and of all.
func (e *dockerEngine) containers() (running, all []string) {
	e.t.Helper()
	list, err := e.client.ContainerList(e.t.Context(), client.ContainerListOptions{All: true})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, c := range list.Items {
		all = append(all, c.Labels["flightline.pod"])
		if c.State == "running" {
			running = append(running, c.Labels["flightline.pod"])
		}
	}
	return running, all
}

// runs waits until these pods have containers, and no other has.
func (e *dockerEngine) runs(pods ...string) {
	e.t.Helper()
	f := fleetSite{t: e.t}
	f.await("containers of "+strings.Join(pods, ", "), func() string {
		running, all := e.containers()
		if sameNames(running, pods) && len(all) == len(pods) {
			return ""
		}
		return fmt.Sprintf("%v, of %v", running, all)
	})
}
