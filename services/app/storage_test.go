package app

import (
	"errors"
	"testing"

	"flightline/shared/storehealth"
	"flightline/shared/web"
)

func TestReadinessSaysWhatToDo(t *testing.T) {
	there := func() error { return nil }
	removed := func() error { return errors.New("/path was removed") }
	for want, p := range map[string]plan{
		"1 stream refuses writes (no space left on device); NATS is restarted once the data folder takes writes": {own: &ownNATS{checkPlace: there}},
		"1 stream refuses writes (no space left on device); restart NATS once its disk takes writes":             {},
		"the data folder was removed or replaced since the start; put it back before you stop":                   {own: &ownNATS{checkPlace: removed}},
	} {
		n := &node{storage: storehealth.NewMonitor(storehealth.Config{More: func() []storehealth.Failure {
			return []storehealth.Failure{{Stream: "JOBS_secret", Reason: "write /path: no space left on device"}}
		}})}
		if reason, ok := errors.AsType[web.ShownError](n.takesWrites(p)); !ok || string(reason) != want {
			t.Errorf("got %q, want %q", reason, want)
		}
	}
	if err := (&node{storage: storehealth.NewMonitor(storehealth.Config{})}).takesWrites(plan{}); err != nil {
		t.Errorf("none: got %v", err)
	}
}
