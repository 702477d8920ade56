package api

import (
	"testing"

	"flightline/shared/endpoint"
)

func TestCanaryIsASentence(t *testing.T) {
	for state, want := range map[string]string{
		endpoint.CanaryRunning:    "version 3 is tried beside version 1",
		endpoint.CanaryPromoted:   "version 3 was promoted: 0 of 20 jobs failed",
		endpoint.CanaryRolledBack: "version 3 was rolled back to version 1: 0 of 20 jobs failed",
	} {
		if got := CanaryOf(endpoint.Canary{State: state, Version: 3, FormerVersion: 1, Text: "0 of 20 jobs failed"}).String(); got != want {
			t.Errorf("%s: got %q, want %q", state, got, want)
		}
	}
	if got := CanaryOf(endpoint.Canary{}); got != nil {
		t.Errorf("got %+v, want nil without a canary", got)
	}
}
