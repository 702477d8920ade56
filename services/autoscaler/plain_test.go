package autoscaler

import (
	"context"
	"testing"

	"flightline/services/autoscaler/driver"
	"flightline/shared/pod"
)

func TestWhyAPodWasNotStartedIsSaidOnce(t *testing.T) {
	d, err := driver.NewProcess(t.Context(), driver.ProcessConfig{Folder: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.WithoutCancel(t.Context())) })
	err = d.Start(t.Context(), driver.Start{PodID: "p", Spec: pod.Spec{Command: []string{"no-such-program"}}})
	if err == nil {
		t.Fatal("got nil, want an error")
	}
	if got, want := textOf("p", err), `exec: "no-such-program": executable file not found in $PATH`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
