package endpoint

import (
	"strings"
	"testing"
	"time"
)

func TestParseRollout(t *testing.T) {
	for text, want := range map[string]int{"": 0, "replace": 0, "canary:1%": 1, "canary:10%": 10, "canary:99%": 99} {
		if got, err := ParseRollout(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
		if text != "" && RolloutText(want) != text {
			t.Errorf("%d: got %q, want %q", want, RolloutText(want), text)
		}
	}
	for _, text := range []string{"canary", "canary:", "canary:10", "canary:0%", "canary:100%", "canary:-1%", "canary:1.5%", "10%", "Replace", " replace"} {
		if _, err := ParseRollout(text); err == nil || !strings.HasPrefix(err.Error(), `rollout must be "replace" or "canary:10%"`) {
			t.Errorf("%q: got %v, want an error that says what may be", text, err)
		}
	}
}

func TestANewReleaseBeginsACanary(t *testing.T) {
	images := func(image string) func(*Endpoint) { return func(e *Endpoint) { e.Fleet.Image = image } }
	change := func(e Endpoint, f func(*Endpoint)) Endpoint {
		now := e
		now.Version++
		f(&now)
		return now.Released(e)
	}
	first := Endpoint{ID: "ep", Version: 1, Release: 1, CanaryPercent: 10, Fleet: Fleet{Driver: "docker", Image: "a"}, Env: map[string]string{"A": "1"}}
	second := change(first, images("b"))
	if c := second.Canary; !c.Lasts() || c.Version != 2 || c.FormerVersion != 1 || c.Former.Fleet.Image != "a" || c.Former.Env["A"] != "1" {
		t.Fatalf("got %+v, want version 2 beside version 1", c)
	}
	second.Fleet.Priority = 2
	if f := second.Former(); f.Fleet.Image != "a" || f.Release != 1 || f.Fleet.Priority != 2 {
		t.Errorf("the former one: got %+v, want the image a, version 1, and today's priority", f.Fleet)
	}
	third := change(second, images("c"))
	if c := third.Canary; c.Version != 3 || c.FormerVersion != 1 || c.Former.Fleet.Image != "a" || !c.Began.IsZero() {
		t.Errorf("a newer one: got %+v, want version 3 beside version 1", c)
	}
	if back := change(second, images("a")); back.Canary.State != "" || back.Release != 1 {
		t.Errorf("taken back by request: got %+v, release %d, want no canary, and 1", back.Canary, back.Release)
	}
	other := change(second, func(e *Endpoint) { e.WorkersMax = 9 })
	if !other.Canary.Lasts() || other.Release != 2 {
		t.Errorf("another setting: got %+v, want that it goes on", other.Canary)
	}
	for name, f := range map[string]func(*Endpoint){
		"without a share": func(e *Endpoint) { e.CanaryPercent, e.Fleet.Image = 0, "b" },
		"external":        func(e *Endpoint) { e.Fleet.Driver = "external" },
	} {
		if got := change(first, f); got.Canary.State != "" || got.Release != 2 {
			t.Errorf("%s: got %+v, release %d, want no canary, and 2", name, got.Canary, got.Release)
		}
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	bad := change(second, func(e *Endpoint) { *e = e.RollBack("too slow", now) })
	if c := bad.Canary; c.State != CanaryRolledBack || c.Version != 2 || c.FormerVersion != 1 || c.Text != "too slow" || !c.Ended.Equal(now) || bad.Fleet.Image != "a" || bad.Release != 1 || c.Former.Fleet.Image != "" {
		t.Errorf("rolled back: got %+v of image %s and release %d", c, bad.Fleet.Image, bad.Release)
	}
	if again := change(bad, images("b")); !again.Canary.Lasts() || again.Canary.FormerVersion != 1 || again.Release != again.Version {
		t.Errorf("tried again by request: got %+v, release %d", again.Canary, again.Release)
	}
	good := change(second, func(e *Endpoint) { *e = e.Promote("no worse", now) })
	if c := good.Canary; c.State != CanaryPromoted || good.Fleet.Image != "b" || good.Release != 2 || c.Former.Fleet.Image != "" {
		t.Errorf("promoted: got %+v of image %s and release %d", c, good.Fleet.Image, good.Release)
	}
}
