package autoscaler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"flightline/shared/placement"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// ends reads pods of endpoints on cards, a minute apart, as "a:g0 exit code 1". The
// words after the card are "exit" with a text, "drained", "unready" (drained, too),
// "removed", "gone" (with its autoscaler), "runs" or "refreshes". The last one ended a
// minute before noon.
func ends(texts ...string) []pod.Pod {
	var all []pod.Pod
	for i, text := range texts {
		at, what, _ := strings.Cut(text, " ")
		endpointID, uuid, _ := strings.Cut(at, ":")
		ended := noon.Add(-time.Duration(len(texts)-i) * time.Minute)
		p := pod.Pod{
			ID: fmt.Sprintf("%s-%d", endpointID, i), Endpoint: endpointID, Driver: pod.Process, Spec: pod.Spec{GPUs: 1}, Devices: strings.Split(uuid, "+"),
			Created: ended.Add(-20 * time.Second), Started: ended.Add(-10 * time.Second), Changed: ended, Status: pod.Exited,
		}
		p.Spec.GPUs = len(p.Devices)
		word, rest, _ := strings.Cut(what, " ")
		switch word {
		case "exit":
			p.By, p.Change = pod.Exit, "it ended by itself with "+rest
		case "drained":
			p.By, p.Drain.At, p.Change = pod.Leave, ended, "it was drained, and ended"
		case "unready":
			p.Status, p.By, p.Drain.At, p.Phases.Loading = pod.Terminated, pod.Remove, ended, p.Started
		case "removed":
			p.Status, p.By, p.Change = pod.Terminated, pod.Remove, "by request"
		case "asked": // it was to go, and crashed
			p.By, p.Drain.At, p.Change = pod.Exit, ended, "it ended by itself with code 1"
		case "gone":
			p.By, p.Change = pod.Exit, vanished
		case "runs":
			p.Status, p.Started, p.Changed = pod.Running, ended, ended
		case "refreshes":
			p.Status, p.Started, p.Refreshed = pod.Running, noon.Add(-time.Second), ended
		}
		all = append(all, p)
	}
	return all
}

// cardsOf reads "g0" or, with its health, "g0:lost", each on the machine m.
func cardsOf(quarantines map[string]registry.Quarantine, texts ...string) []card {
	var all []card
	for _, text := range texts {
		uuid, health, _ := strings.Cut(text, ":")
		d := placement.Device{GPU: pod.GPU{UUID: uuid, Name: "L4", MemoryMB: 24576, Health: health}, Machine: "m", Driver: pod.Process}
		all = append(all, card{Device: d, quarantine: quarantines[uuid]})
	}
	return all
}

// said are the decide as "+g0 reason" for a quarantine and "-g0 reason" for its end.
func said(all []gpuDecision) string {
	var texts []string
	for _, v := range all {
		sign := "+"
		if v.restore {
			sign = "-"
		}
		texts = append(texts, sign+v.uuid+" "+v.reason)
	}
	return strings.Join(texts, "; ")
}

func TestWhichGPUsAreQuarantined(t *testing.T) {
	two := []string{"g0", "g1"}
	for name, tt := range map[string]struct {
		cards []string
		pods  []string
		want  string // how the decide begin, "" for none
	}{
		"three in a row":                  {two, []string{"a:g0 exit code 1", "a:g0 exit code 1", "a:g0 exit code 1"}, "+g0 3 workers in a row failed on it, the last a-2: it ended by itself with code 1"},
		"two":                             {two, []string{"a:g0 exit code 1", "a:g0 exit code 1"}, ""},
		"a success between":               {two, []string{"a:g0 exit code 1", "b:g0 drained", "a:g0 exit code 1", "a:g0 exit code 1"}, ""},
		"a worker runs for long":          {two, []string{"a:g0 exit code 1", "a:g0 exit code 1", "a:g0 exit code 1", "b:g0 runs", "b:g1 drained"}, ""},
		"a worker restarts itself":        {two, []string{"a:g0 exit code 1", "a:g0 exit code 1", "a:g0 exit code 1", "b:g0 refreshes", "b:g1 drained"}, ""},
		"an end by request is no success": {two, []string{"a:g0 exit code 1", "b:g0 removed", "a:g0 exit code 1", "a:g0 exit code 1"}, "+g0 3 workers"},
		"ends by request":                 {two, []string{"a:g0 asked", "a:g0 removed", "a:g0 asked", "a:g0 gone"}, ""},
		// The same failure everywhere is the endpoint's, whichever card it was on first.
		"the same failure on another card":   {two, []string{"a:g0 exit code 1", "a:g0 exit code 1", "a:g0 exit code 1", "a:g1 exit code 1"}, ""},
		"another failure on another card":    {two, []string{"a:g0 exit code 1: no kernel", "a:g0 exit code 1: no kernel", "a:g0 exit code 1: no kernel", "a:g1 exit code 2: no file"}, ""},
		"and it works there":                 {two, []string{"a:g1 exit code 2: no file", "a:g1 drained", "a:g0 exit code 1", "a:g0 exit code 1", "a:g0 exit code 1"}, "+g0 3 workers"},
		"one endpoint's fault does not hide": {two, []string{"a:g1 exit code 1", "a:g0 exit code 1", "b:g0 exit code 9", "b:g0 exit code 9", "b:g0 exit code 9"}, "+g0 3 workers in a row failed on it, the last b-4"},
		// With one card, what fails may be the endpoint: a second one must agree.
		"the only card, one endpoint":      {two[:1], []string{"a:g0 exit code 1", "a:g0 exit code 1", "a:g0 exit code 1", "a:g0 exit code 1"}, ""},
		"the only card, two endpoints":     {two[:1], []string{"a:g0 exit code 1", "b:g0 exit code 2", "a:g0 exit code 1"}, "+g0 3 workers"},
		"no other card that would do":      {[]string{"g0", "g1:lost"}, []string{"a:g0 exit code 1", "a:g0 exit code 1", "a:g0 exit code 1"}, "+g1 it is unhealthy: lost"},
		"an unhealthy one at once":         {[]string{"g0", "g1:lost", "g1:lost"}, nil, "+g1 it is unhealthy: lost"},
		"a worker of two cards blames all": {[]string{"g0", "g1", "g2", "g3"}, []string{"a:g0+g1 exit x", "a:g0+g1 exit x", "a:g0+g1 exit x"}, "+g0 3 workers in a row failed on it, the last a-2: it ended by itself with x; +g1 3"},
	} {
		t.Run(name, func(t *testing.T) {
			j := gpuEvidence{now: noon, cards: cardsOf(nil, tt.cards...), pods: gpuPodsOf(ends(tt.pods...))}
			if got := said(j.decide()); !strings.HasPrefix(got, tt.want) || got != "" && tt.want == "" {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestHowQuarantinesEnd(t *testing.T) {
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	fell := []string{"a:g0 exit code 1", "a:g0 exit code 1", "a:g0 exit code 1"}
	for name, tt := range map[string]struct {
		quarantine registry.Quarantine
		health     string
		pods       []string
		passed     string
		want       string
	}{
		"it holds":                         {registry.Quarantine{Since: at(-1), Until: at(4), Count: 1}, "", fell, "", ""},
		"its endpoint fails elsewhere too": {registry.Quarantine{Since: at(-2), Until: at(4), Count: 1}, "", append(fell[:3:3], "a:g1 exit code 1"), "", "-g0 workers of a fail on other GPUs too"},
		"it was unhealthy, and its endpoint fails elsewhere": {registry.Quarantine{Since: at(-2), Until: at(4), Count: 1, Reason: "it is unhealthy: XID 79"}, "", append(fell[:3:3], "a:g1 exit code 1"), "", ""},
		"it was asked for":                        {registry.Quarantine{Since: at(-2), Until: at(4), By: "key"}, "", append(fell[:3:3], "a:g1 exit code 1"), "", ""},
		"it is over and nothing was tried":        {registry.Quarantine{Since: at(-9), Until: at(-4), Count: 1}, "", nil, "", ""},
		"what failed before does not count":       {registry.Quarantine{Since: at(-9), Until: at(-1), Count: 1}, "", fell, "", ""},
		"a probe failed":                          {registry.Quarantine{Since: at(-9), Until: at(-4), Count: 1}, "", fell[:1], "", "+g0 the worker a-0 that tried it failed: it ended by itself with code 1"},
		"a probe that fails everywhere":           {registry.Quarantine{Since: at(-9), Until: at(-4), Count: 1}, "", []string{"a:g0 exit code 1", "a:g1 exit code 1"}, "", ""},
		"a probe passed":                          {registry.Quarantine{Since: at(-9), Until: at(-4), Count: 1}, "", []string{"a:g0 runs"}, "a-0", "-g0 the worker a-0 works on it"},
		"a probe runs":                            {registry.Quarantine{Since: at(-9), Until: at(-4), Count: 1}, "", []string{"a:g0 runs"}, "", ""},
		"a probe was drained":                     {registry.Quarantine{Since: at(-9), Until: at(-4), Count: 1}, "", []string{"a:g0 drained"}, "", "-g0 the worker a-0 works on it"},
		"a probe was drained before it was ready": {registry.Quarantine{Since: at(-9), Until: at(-4), Count: 1}, "", []string{"a:g0 unready"}, "", ""},
		"a probe, and it was by request":          {registry.Quarantine{Since: at(-9), Until: at(-4), By: "key"}, "", []string{"a:g0 runs"}, "a-0", "-g0 the worker a-0 works on it"},
		"it is over and still unhealthy":          {registry.Quarantine{Since: at(-9), Until: at(-4), Count: 1}, "lost", nil, "", "+g0 it is unhealthy: lost"},
		"unhealthy while it holds":                {registry.Quarantine{Since: at(-9), Until: at(4), Count: 1}, "lost", nil, "", ""},
		"restored, and it fails again":            {registry.Quarantine{Since: at(-20), Until: at(-10), Restored: at(-10), Count: 1}, "", fell, "", "+g0 3 workers"},
		"restored after it failed":                {registry.Quarantine{Since: at(-20), Until: at(-10), Restored: at(-2)}, "", fell, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cards := cardsOf(map[string]registry.Quarantine{"g0": tt.quarantine}, "g0:"+tt.health, "g1")
			j := gpuEvidence{now: noon, cards: cards, pods: gpuPodsOf(ends(tt.pods...)), passed: map[string]bool{tt.passed: true}}
			if got := said(j.decide()); !strings.HasPrefix(got, tt.want) || got != "" && tt.want == "" {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestAProbePassesWithAJobOrWithout(t *testing.T) {
	w := func(jobs ...string) registry.Worker { return registry.Worker{Running: jobs} }
	type look struct {
		after time.Duration
		w     registry.Worker
	}
	for name, tt := range map[string]struct {
		looks []look
		want  bool
	}{
		"just ready":             {[]look{{0, w()}}, false},
		"ready for a while":      {[]look{{0, w()}, {probeRest, w()}}, true},
		"its first job runs":     {[]look{{0, w("j")}, {time.Hour, w("j")}}, false},
		"its first job ended":    {[]look{{0, w("j")}, {time.Second, w("k")}}, true},
		"one of two jobs ended":  {[]look{{0, w("j", "k")}, {time.Second, w("j")}}, true},
		"a job came late, ended": {[]look{{0, w()}, {time.Second, w("j")}, {2 * time.Second, w()}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var p probe
			got := false
			for _, l := range tt.looks {
				p = p.next(l.w, noon.Add(l.after))
				got = p.passed(l.w, noon.Add(l.after))
			}
			if got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestQuarantinesGetLonger(t *testing.T) {
	c := Config{Quarantine: 5 * time.Minute}
	for count, want := range map[int]time.Duration{1: 5 * time.Minute, 2: 10 * time.Minute, 3: 20 * time.Minute, 5: time.Hour, 99: time.Hour} {
		if got := c.quarantineLength(count); got != want {
			t.Errorf("%d in a row: got %s, want %s", count, got, want)
		}
	}
	if got := (Config{Quarantine: 2 * time.Hour}).quarantineLength(3); got != 2*time.Hour {
		t.Errorf("got %s, want 2h", got)
	}
}
