package registry

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"flightline/shared/testenv"
	"flightline/streams"
)

func destinationsOf(t *testing.T) *Destinations {
	t.Helper()
	t.Parallel()
	_, r := newRegistry(t)
	return r.Destinations
}

func TestADestinationIsPausedWhenPatienceEnds(t *testing.T) {
	d := destinationsOf(t)
	begin := time.Now().UTC()
	patience := FailurePolicy{Webhooks: 3, For: time.Hour}
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
		if got, err := d.GaveUp(t.Context(), "ep", "http://h:80", FailurePolicy{Webhooks: 2}, "x", time.Now()); err != nil || got.Paused {
			t.Fatalf("got %+v, %v", got, err)
		}
		if err := d.Answered(t.Context(), "ep", "http://h:80"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := d.GaveUp(t.Context(), "ep", "http://h:80", FailurePolicy{}, "x", time.Now()); err != nil || got.Paused {
		t.Errorf("got %+v, %v: no patience set means never", got, err)
	}
}

func TestFailuresOfSeveralInstancesAddUp(t *testing.T) {
	d := destinationsOf(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := d.GaveUp(t.Context(), "ep", "http://h:80", FailurePolicy{}, "x", time.Now()); err != nil {
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

// The bucket forgets a destination by itself, unless it was ever paused.
func TestADestinationIsNotKeptForGoodUnlessItWasPaused(t *testing.T) {
	d := destinationsOf(t)
	ttl := func(origin string) string {
		t.Helper()
		m, err := d.table.bus.LeaderLast(t.Context(), streams.Bucket(d.table.bucket), d.table.subject+destinationKey("ep", origin))
		if err != nil {
			t.Fatal(err)
		}
		return m.Header.Get("Nats-TTL")
	}
	const origin = "http://h:80"
	gaveUp := func(p FailurePolicy) {
		t.Helper()
		if _, err := d.GaveUp(t.Context(), "ep", origin, p, "x", time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	steps := []struct {
		what string
		do   func() error
		want string
	}{
		{"it fails", func() error { gaveUp(FailurePolicy{}); return nil }, "604800s"},
		{"it fails again", func() error { gaveUp(FailurePolicy{}); return nil }, "604800s"},
		{"it answers", func() error { return d.Answered(t.Context(), "ep", origin) }, "168h0m0s"},
		{"it fails after that", func() error { gaveUp(FailurePolicy{}); return nil }, "604800s"},
		{"it is paused", func() error { _, err := d.Pause(t.Context(), "ep", origin, "x", time.Now()); return err }, ""},
		{"it fails while paused", func() error { gaveUp(FailurePolicy{}); return nil }, ""},
		{"it is resumed", func() error { return d.Resume(t.Context(), "ep", origin) }, ""},
		{"it is resumed again", func() error { return d.Resume(t.Context(), "ep", origin) }, ""},
		{"it fails after that", func() error { gaveUp(FailurePolicy{}); return nil }, ""},
		{"it answers", func() error { return d.Answered(t.Context(), "ep", origin) }, ""},
		{"patience ends at once", func() error { gaveUp(FailurePolicy{Webhooks: 1}); return nil }, ""},
		{"the endpoint is deleted", func() error { return d.Drop(t.Context(), "ep") }, ""},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := ttl(origin); got != step.want {
			t.Errorf("%s: got a ttl of %q, want %q", step.what, got, step.want)
		}
	}
}

// A stranger with many names costs a bounded number of entries; who is paused
// stays, and other endpoints' too. What one removal does not get done, as on a busy
// machine, the next one does, 50 failures later.
func TestAnEndpointHasABoundedNumberOfFailingDestinations(t *testing.T) {
	d := destinationsOf(t)
	fail := func(endpoint, origin string) error {
		_, err := d.GaveUp(t.Context(), endpoint, origin, FailurePolicy{}, "x", time.Now())
		return err
	}
	testenv.Retry(t, func() error { return fail("ep", "http://paused:80") })
	testenv.Retry(t, func() error { return fail("ep", "http://first:80") })
	testenv.Retry(t, func() error { return fail("other", "http://first:80") })
	testenv.Retry(t, func() error {
		_, err := d.Pause(t.Context(), "ep", "http://paused:80", "x", time.Now())
		return err
	})
	var wg sync.WaitGroup
	names := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range names {
				err := fail("ep", fmt.Sprintf("http://h%d:80", i))
				for testenv.IsLate(err) {
					err = fail("ep", fmt.Sprintf("http://h%d:80", i))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	n := maxFailures + 3*failuresCheck
	for i := range n {
		names <- i
	}
	close(names)
	wg.Wait()
	has := func(list []Destination, origin string) bool {
		return slices.ContainsFunc(list, func(x Destination) bool { return x.Origin == origin })
	}
	var list []Destination
	for tries := 0; ; tries++ {
		testenv.Retry(t, func() (err error) {
			list, err = d.List(t.Context(), "ep")
			return err
		})
		if len(list) <= maxFailures+failuresCheck+1 && !has(list, "http://first:80") {
			break
		}
		if tries == 10 {
			t.Fatalf("got %d, the first one among them: %v, want about %d without it", len(list), has(list, "http://first:80"), maxFailures)
		}
		for range failuresCheck {
			testenv.Retry(t, func() error { return fail("ep", fmt.Sprintf("http://h%d:80", n)) })
			n++
		}
	}
	if len(list) < maxFailures || !has(list, "http://paused:80") {
		t.Errorf("got %d, the paused destination among them: %v, want %d or more with it", len(list), has(list, "http://paused:80"), maxFailures)
	}
	testenv.Retry(t, func() (err error) {
		list, err = d.List(t.Context(), "other")
		return err
	})
	if len(list) != 1 {
		t.Errorf("got %+v of another endpoint, want its one", list)
	}
	testenv.Retry(t, func() error { return d.Drop(t.Context(), "ep") })
	testenv.Retry(t, func() (err error) {
		list, err = d.List(t.Context(), "")
		return err
	})
	if len(list) != 1 || list[0].Endpoint != "other" {
		t.Errorf("got %+v, want the other endpoint's alone", list)
	}
}

func TestWhichDestinationsGiveWay(t *testing.T) {
	d := destinationsOf(t)
	now := time.Now()
	of := func(n int, ago time.Duration, paused bool) (all []entry[Destination]) {
		for i := range n {
			all = append(all, entry[Destination]{written: now.Add(-ago - time.Duration(i)*time.Millisecond), value: Destination{Paused: paused}})
		}
		return all
	}
	const week = failuresAge + time.Minute
	for name, test := range map[string]struct {
		entries []entry[Destination]
		want    int
	}{
		"none":            {nil, 0},
		"few":             {of(3, 0, false), 0},
		"as many as may":  {of(maxFailures, 0, false), 0},
		"two too many":    {of(maxFailures+2, 0, false), 2},
		"old ones":        {append(of(3, week, false), of(2, 0, false)...), 3},
		"all are old":     {of(4, week, false), 4},
		"all are paused":  {of(maxFailures+5, week, true), 0},
		"some are paused": {append(of(maxFailures, 0, true), of(maxFailures+1, 0, false)...), 1},
	} {
		if got := d.surplus(test.entries); len(got) != test.want {
			t.Errorf("%s: got %d, want %d", name, len(got), test.want)
		}
	}
}

// The bucket announces no value whose time came: memory lets go of it by
// itself.
func TestTheCacheLetsGoOfWhatExpired(t *testing.T) {
	c := newAgingCache(&agingTable[Destination]{Table: &Table[Destination]{}, ttl: failuresAge, expires: func(d Destination) bool { return !d.Paused }}, nil)
	at := func(ago time.Duration, paused bool) entry[Destination] {
		return entry[Destination]{written: time.Now().Add(-ago), value: Destination{Paused: paused}}
	}
	c.entries = map[string]entry[Destination]{"new": at(0, false), "old": at(2*failuresAge, false), "paused": at(2*failuresAge, true)}
	c.prune(time.Now())
	if _, old := c.entries["old"]; old || len(c.entries) != 2 {
		t.Errorf("got %v, want new and paused", c.entries)
	}
}
