package compose

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"

	"flightline/e2e/require"
)

const version = "v0.0.0-compose"

// image and workerImage are what the tests build and run.
const (
	image       = "flightline:composetest"
	workerImage = "flightline-worker:composetest"
)

// bases are the images that ours are built on and that the stacks run.
var bases = []string{
	"golang:1.26-bookworm", "nats:2.15.2-alpine", "python:3.12-slim",
	"versity/versitygw:v1.8.0", "prom/prometheus:v3.5.0",
}

// keep takes the images that are there for built, to try on the tests themselves.
var keep = flag.Bool("keep-images", false, "do not build the images")

var built sync.Once

// build makes the images by the real Dockerfiles, on stand-ins where no registry
// can be reached.
func build(t *testing.T) {
	t.Helper()
	if !require.Requested("compose") {
		t.Skip("takes minutes: set FLIGHTLINE_REQUIRE=compose")
	}
	if err := exec.CommandContext(t.Context(), "docker", "version").Run(); err != nil {
		require.Skip(t, "compose", "no Docker engine answers")
	}
	built.Do(func() {
		if *keep {
			return
		}
		began := time.Now()
		for _, base := range bases {
			if run(t, "docker", "image", "inspect", base) != nil && run(t, "docker", "pull", "-q", base) != nil {
				must(t, "e2e/compose/standins")
				break
			}
		}
		must(t, "docker", "build", "-q", "--network", "host", "-f", "services/Dockerfile", "--build-arg", "VERSION="+version, "-t", image, ".")
		must(t, "docker", "build", "-q", "--network", "host", "-f", "e2e/workers/Dockerfile", "-t", workerImage, ".")
		t.Logf("images built in %v", time.Since(began).Round(time.Second))
	})
}

// run runs a program at the top of the repository.
func run(t *testing.T, command ...string) error {
	t.Helper()
	c := exec.CommandContext(t.Context(), command[0], command[1:]...)
	c.Dir, c.Env = "../..", append(os.Environ(), "DOCKER_BUILDKIT=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Logf("%v: %v\n%s", command, err, tail(string(out), 4000))
	}
	return err
}

func must(t *testing.T, command ...string) {
	t.Helper()
	if err := run(t, command...); err != nil {
		t.Fatal(err)
	}
}

// The image is what a cluster's policy asks for: a number for a user, no shell,
// a health check that needs none, and labels that say what it is.
func TestComposeImage(t *testing.T) {
	build(t)
	docker, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer docker.Close() //nolint:errcheck // nothing was written
	found, err := docker.ImageInspect(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	c := found.Config
	if c.User != "65532:65532" {
		t.Errorf("got user %q, want a number that is not root's", c.User)
	}
	if c.Healthcheck == nil || !slices.Equal(c.Healthcheck.Test, []string{"CMD", "/flightline", "healthcheck"}) {
		t.Errorf("got health check %+v", c.Healthcheck)
	}
	for label, want := range map[string]string{
		"title": "flightline", "version": version, "licenses": "Apache-2.0", "revision": "unknown",
	} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s: got %q, want %q", label, got, want)
		}
	}
	if got := output(t, "docker", "run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", image, "version"); got != "flightline "+version {
		t.Errorf("got %q, want the version of the build", got)
	}
	for _, shell := range []string{"/bin/sh", "/bin/bash", "/bin/busybox"} {
		if out, err := exec.CommandContext(t.Context(), "docker", "run", "--rm", "--network", "none", "--entrypoint", shell, image, "-c", "true").CombinedOutput(); err == nil {
			t.Errorf("%s is in the image: %s", shell, out)
		}
	}
}

func output(t *testing.T, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return strings.TrimSpace(string(out))
}
