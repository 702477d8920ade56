package fleets

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"flightline/e2e/require"
	"flightline/shared/testenv/program"
)

// dockerEngine is a Docker engine of the test's own, which it may kill. It has no
// network of containers but the host's.
type dockerEngine struct {
	t       *testing.T
	dir     string
	bridge  string
	storage string
	cmd     *exec.Cmd
	said    *os.File
	client  *client.Client
}

// bridges counts those of this process.
var bridges atomic.Int32

// newEngine starts one, or says why there can be none. The storage driver is one
// of the engine's, or "" for what suits the machine; an engine that is killed needs "vfs",
// which mounts nothing.
func newEngine(t *testing.T, storage string) *dockerEngine {
	t.Helper()
	for _, program := range []string{"dockerd", "ip"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			require.Skip(t, "docker", "only root can start an engine, and "+program+" has to be installed")
		}
	}
	dir, err := os.MkdirTemp("/tmp", "fl-engine-") //nolint:usetesting // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeEngine(t, dir) })
	// One with --bridge none would remove docker0, which the machine's engine needs.
	e := &dockerEngine{t: t, dir: dir, storage: storage, bridge: fmt.Sprintf("fl%d-%d", os.Getpid(), bridges.Add(1))}
	if out, err := exec.Command("ip", "link", "add", e.bridge, "type", "bridge").CombinedOutput(); err != nil {
		require.Skip(t, "docker", fmt.Sprintf("no bridge can be made: %v %s", err, out))
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

// removeEngine removes the folder of an engine that has ended, and the mounts that it
// leaves there.
func removeEngine(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Log(err)
	}
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if at := strings.Fields(line); len(at) > 1 && strings.HasPrefix(at[1], dir+"/") {
			if out, err := exec.Command("umount", "--lazy", at[1]).CombinedOutput(); err != nil {
				t.Logf("unmount %s: %v %s", at[1], err, out)
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Logf("left there: %v", err)
	}
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
		"--bridge", e.bridge, "--iptables=false", "--ip-forward=false", "--storage-driver", e.storage)
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
			require.Skip(e.t, "docker", fmt.Sprintf("no engine can be started: %v\n%s", err, text))
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
	ctx, cancel := context.WithTimeout(context.Background(), program.Soon)
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
	late := time.AfterFunc(program.Soon, func() { _ = e.cmd.Process.Kill() })
	defer late.Stop()
	_ = e.cmd.Wait()
}

// image makes one of these files, by where they are in it, which runs the entrypoint.
func (e *dockerEngine) image(name string, files map[string]string, entrypoint ...string) {
	e.t.Helper()
	runs, err := json.Marshal(entrypoint)
	if err != nil {
		e.t.Fatal(err)
	}
	layer, w := io.Pipe()
	go func() { _ = w.CloseWithError(pack(w, files)) }()
	defer layer.Close()
	answer, err := e.client.ImageImport(e.t.Context(), client.ImageImportSource{Source: layer, SourceName: "-"}, name,
		client.ImageImportOptions{Changes: []string{"ENTRYPOINT " + string(runs)}})
	if err != nil {
		e.t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, answer)
	if err = errors.Join(err, answer.Close()); err != nil {
		e.t.Fatal(err)
	}
}

// pack writes the files as a layer. What is a link here is a file there.
func pack(to io.Writer, files map[string]string) error {
	w := tar.NewWriter(to)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := packFile(w, name, files[name]); err != nil {
			return err
		}
	}
	return w.Close()
}

func packFile(w *tar.Writer, name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// Compiled Python is good for a source of the same second only.
	err = w.WriteHeader(&tar.Header{
		Name: strings.TrimPrefix(name, "/"), Mode: int64(info.Mode().Perm()), Size: info.Size(), ModTime: info.ModTime(),
	})
	if err == nil {
		_, err = io.Copy(w, f)
	}
	return err
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
