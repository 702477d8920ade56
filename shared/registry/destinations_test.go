package registry

import (
	"sync"
	"testing"
	"time"

	"flightline/shared/bus/bustest"
	"flightline/streams"
)

func destinationsOf(t *testing.T) *Destinations {
	t.Helper()
	b := bustest.New(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	r, err := New(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Destinations
}

func TestADestinationIsPausedWhenPatienceEnds(t *testing.T) {
	d := destinationsOf(t)
	begin := time.Now().UTC()
	patience := Patience{Webhooks: 3, For: time.Hour}
	steps := []struct {
		after  time.Duration
		paused bool
	}{{0, false}, {time.Minute, false}, {2 * time.Minute, false}, {time.Hour, true}, {2 * time.Hour, true}}
	for i, step := range steps {
		got, err := d.GaveUp(t.Context(), "ep", "http://h:80", patience, "status 500", begin.Add(step.after))
		if err != nil || got.Paused != step.paused || got.Failures != i+1 || !got.First.Equal(begin) {
			t.Fatalf("failure %d: got %+v, %v, want paused %v", i+1, got, err, step.paused)
		}
	}
	got, err := d.Get(t.Context(), "ep", "http://h:80")
	if want := "4 webhooks in a row were given up, the last one: status 500"; err != nil || got.Reason != want || !got.Since.Equal(begin.Add(time.Hour)) {
		t.Errorf("got %+v, %v, want the reason %q", got, err, want)
	}
	if other, err := d.Get(t.Context(), "other", "http://h:80"); err != nil || other != (Destination{}) {
		t.Errorf("got %+v, %v: another endpoint's is another one", other, err)
	}
	if err := d.Answered(t.Context(), "ep", "http://h:80"); err != nil {
		t.Fatal(err)
	}
	if list, err := d.List(t.Context(), "ep"); err != nil || len(list) != 1 || !list[0].Paused {
		t.Errorf("got %+v, %v: a late answer resumes nothing", list, err)
	}
	if err := d.Resume(t.Context(), "ep", "http://h:80"); err != nil {
		t.Fatal(err)
	}
	if list, err := d.List(t.Context(), ""); err != nil || len(list) != 0 {
		t.Errorf("got %+v, %v, want none", list, err)
	}
}

func TestAnAnswerEndsTheCount(t *testing.T) {
	d := destinationsOf(t)
	for range 2 {
		if got, err := d.GaveUp(t.Context(), "ep", "http://h:80", Patience{Webhooks: 2}, "x", time.Now()); err != nil || got.Paused {
			t.Fatalf("got %+v, %v", got, err)
		}
		if err := d.Answered(t.Context(), "ep", "http://h:80"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := d.GaveUp(t.Context(), "ep", "http://h:80", Patience{}, "x", time.Now()); err != nil || got.Paused {
		t.Errorf("got %+v, %v: no patience set means never", got, err)
	}
}

func TestFailuresOfSeveralInstancesAddUp(t *testing.T) {
	d := destinationsOf(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := d.GaveUp(t.Context(), "ep", "http://h:80", Patience{}, "x", time.Now()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, err := d.Find(t.Context(), "ep", "http://h:80"); err != nil || got.Failures != 4 {
		t.Errorf("got %+v, %v, want 4 failures", got, err)
	}
}

func TestOrigins(t *testing.T) {
	for webhook, want := range map[string]string{
		"http://H/a?b#c": "http://h:80", "https://u:p@h:8443/": "https://h:8443", "https://h": "https://h:443", "http://h:/": "http://h:80",
		"HTTP://h": "http://h:80", "http://[::1]:7": "http://[::1]:7", "ftp://h": "", "h": "", "": "", "http://": "", "http://:80/": "", "http://%zz": "",
	} {
		if got, ok := OriginOf(webhook); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", webhook, got, ok, want)
		}
	}
}
