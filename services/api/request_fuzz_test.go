package api

import (
	"testing"
	"time"

	"flightline/shared/job"
)

// Whatever a client prefers, the wait is one of whole seconds that is allowed.
func FuzzParsePreferences(f *testing.F) {
	for _, text := range []string{"wait=10", "respond-async, wait=100", `wait="5";x=y`, "wait=-1", "wait=99999999999999999999", "wait=1,wait=2", ",,=;", "WAIT = 3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p := parsePreferences(text); p.wait < 0 || p.wait > job.MaxWait || p.wait%time.Second != 0 {
			t.Errorf("%q: got %v, want 0 to %v in whole seconds", text, p.wait, job.MaxWait)
		}
	})
}
