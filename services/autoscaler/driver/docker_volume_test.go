package driver

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/moby/moby/client"

	"flightline/shared/pod"
)

// An image may have volumes, which the engine makes with each container.
func TestAContainerThatCannotStartLeavesNoVolume(t *testing.T) {
	t.Parallel()
	d := newDocker(t, DockerConfig{})
	const withVolume = "flightline-driver-test:volume"
	var layer bytes.Buffer
	if err := tar.NewWriter(&layer).Close(); err != nil {
		t.Fatal(err)
	}
	source := client.ImageImportSource{Source: &layer, SourceName: "-"}
	answer, err := d.engine.ImageImport(t.Context(), source, withVolume, client.ImageImportOptions{Changes: []string{"VOLUME /data"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, answer); err != nil {
		t.Fatal(err)
	}
	_ = answer.Close()
	defer d.engine.ImageRemove(t.Context(), withVolume, client.ImageRemoveOptions{Force: true}) //nolint:errcheck // the test is over
	before := unusedVolumes(t, d)
	err = d.Start(t.Context(), Start{PodID: "p1", Endpoint: "ep", Spec: pod.Spec{Image: withVolume, Command: []string{"/nothing"}}})
	if !errors.Is(err, pod.ErrInvalid) {
		t.Errorf("got %v, want that it cannot be started", err)
	}
	for _, name := range unusedVolumes(t, d) {
		if !slices.Contains(before, name) {
			t.Errorf("got the volume %s left", name)
		}
	}
}

// unusedVolumes are those of no container.
func unusedVolumes(t *testing.T, d *Docker) (names []string) {
	t.Helper()
	found, err := d.engine.VolumeList(t.Context(), client.VolumeListOptions{Filters: client.Filters{}.Add("dangling", "true")})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found.Items {
		names = append(names, v.Name)
	}
	return names
}
