package system

import (
	"os"
	"slices"
	"testing"
	"time"
)

func TestTheAuditOfGPUsSeesWhatIsWrong(t *testing.T) {
	now := time.Unix(1000, 0)
	a := newGPUAudit(nil)
	one, two := gpuClaim{"g", "one"}, gpuClaim{"g", "two"}
	for i, look := range []struct {
		after  time.Duration
		claims map[gpuClaim]float64
		lives  map[string]bool
		over   string
		most   time.Duration
	}{
		{0, map[gpuClaim]float64{one: 1}, map[string]bool{"one": true}, "", 0},
		{1 * time.Second, map[gpuClaim]float64{one: 1, two: 0}, map[string]bool{"one": true, "two": true}, "", 0},
		{2 * time.Second, map[gpuClaim]float64{one: 1, two: 0.5}, map[string]bool{"one": true}, "g", 0},
		{9 * time.Second, map[gpuClaim]float64{two: 0.5}, nil, "", 7 * time.Second},
		{10 * time.Second, nil, nil, "", 7 * time.Second},
		{11 * time.Second, map[gpuClaim]float64{two: 0.5}, nil, "", 7 * time.Second}, // another claim
	} {
		if over := a.add(look.claims, look.lives, now.Add(look.after)); over != look.over || a.longest != look.most {
			t.Errorf("look %d: got %q, %s, want %q, %s", i, over, a.longest, look.over, look.most)
		}
	}
	first := map[string][]string{"g": {"one", "two"}, "h": {"three", "four"}}
	if got := usedTwice(first, map[string][]string{"g": {"two"}, "h": {"four", "three"}}); !slices.Equal(got, []string{"h is used by three and four"}) {
		t.Errorf("got %q", got)
	}
}

func TestAProcessDescendsFromItsParents(t *testing.T) {
	if !needProc.met(Config{}) {
		t.Skip("reads /proc")
	}
	p := gpuProcess{pid: os.Getpid()}
	if !p.descendsFrom(os.Getpid()) || !p.descendsFrom(os.Getppid()) || p.descendsFrom(-1) {
		t.Error("got another parent than the system has")
	}
}
