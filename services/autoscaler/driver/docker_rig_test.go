package driver

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/moby/moby/client"

	"flightline/e2e/require"
)

// image is one of the helper alone, made once and removed with the last test.
const image = "flightline-driver-test:1"

var imported atomic.Bool

var importImage = sync.OnceValue(func() error {
	imported.Store(true)
	name, err := helper()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err = errors.Join(w.WriteHeader(&tar.Header{Name: "pod", Mode: 0o755, Size: int64(len(text))}), func() error {
		_, err := w.Write(text)
		return err
	}(), w.Close())
	if err != nil {
		return err
	}
	engine, err := client.New(client.WithHost(defaultEngine))
	if err != nil {
		return err
	}
	defer engine.Close()
	answer, err := engine.ImageImport(context.Background(), client.ImageImportSource{Source: &layer, SourceName: "-"}, image, client.ImageImportOptions{})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer)
	return errors.Join(err, answer.Close())
})

func removeImage() {
	if !imported.Load() {
		return
	}
	if engine, err := client.New(client.WithHost(defaultEngine)); err == nil {
		_, _ = engine.ImageRemove(context.Background(), image, client.ImageRemoveOptions{Force: true})
		_ = engine.Close()
	}
}

// newDocker returns a driver of an installation of its own, whose containers
// are removed with the test. It needs an engine.
func newDocker(t *testing.T, cfg DockerConfig) *Docker {
	t.Helper()
	cfg.Installation = "fltest-" + uuid.NewString()[:8]
	d := connect(t, cfg)
	if _, _, err := d.Machine(t.Context()); err != nil {
		require.Skip(t, "docker", "no engine answers: "+err.Error())
	}
	if err := importImage(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, d) })
	return d
}

func connect(t *testing.T, cfg DockerConfig) *Docker {
	t.Helper()
	d, err := NewDocker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func removeAll(t *testing.T, d *Docker) {
	t.Helper()
	ctx := context.Background()
	ours := client.Filters{}.Add("label", installationLabel+"="+d.cfg.Installation)
	left, err := d.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	if err != nil {
		t.Error(err)
	}
	for _, c := range left.Items {
		if _, err := d.engine.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}
}
