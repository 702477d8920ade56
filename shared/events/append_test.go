package events

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

func TestEachEventIsThereOnceAndInOrderWhoeverAppends(t *testing.T) {
	t.Parallel()
	const jobs, writers = 300, 4
	b := newBus(t)
	var list []Event
	for i := range jobs {
		list = append(list, life("ep", fmt.Sprintf("j%d", i))...)
	}
	var g errgroup.Group
	for n := range writers {
		l := open(t, b)
		g.Go(func() error { return appendAgain(t, l, list[4*(n*jobs/writers):]) })
	}
	l := open(t, b)
	g.Go(func() error { return appendAgain(t, l, list) })
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	told := map[job.ID]int{}
	got := all(t, l)
	for _, e := range got {
		want := life("ep", string(e.Job))[told[e.Job]]
		if e.Kind != want.Kind || e.Run != want.Run {
			t.Fatalf("job %s: got %s %d, want %s %d", e.Job, e.Kind, e.Run, want.Kind, want.Run)
		}
		told[e.Job]++
	}
	if len(got) != len(list) {
		t.Errorf("got %d events, want %d", len(got), len(list))
	}
}

func TestWavesKeepTheOrderOfAJob(t *testing.T) {
	t.Parallel()
	list := append(life("ep", "a"), life("ep", "b")[:2]...)
	list = append(list, life("other", "a")[0])
	var got []int
	for _, wave := range waves(list) {
		got = append(got, len(wave))
	}
	if want := []int{3, 2, 1, 1}; !cmp.Equal(got, want) {
		t.Errorf("got waves of %v, want %v", got, want)
	}
}

// The recorder appends up to 40 times a second, also when few jobs end.
func TestAnAppendTakesLittleMemory(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	const times, most = 20, 256 << 10 // with the server's share; SubscribeSync alone takes twice as much
	l, e := open(t, newBus(t)), life("ep", "a")[0]
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	appendOnce := func() {
		if err := l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	appendOnce() // the server makes its buffers
	before := allocated()
	for range times {
		appendOnce()
	}
	if got := (allocated() - before) / times; got > most {
		t.Errorf("an append of one event takes %d bytes, want at most %d", got, most)
	}
}

func TestAppendDuringAnOutageMayBeRepeated(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l := open(t, b)
	if err := l.Append(t.Context(), life("ep", "a")[:2]...); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	if err := l.Append(t.Context(), life("ep", "a")...); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("got %v, want bus.ErrUnavailable", err)
	}
	if _, err := l.Last(t.Context(), "ep", "a"); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("got %v, want bus.ErrUnavailable", err)
	}
	b.Start()
	testenv.Eventually(t, "the events are appended", func() bool { return l.Append(t.Context(), life("ep", "a")...) == nil })
	if got := all(t, l); len(got) != 4 {
		t.Errorf("got %d events, want 4", len(got))
	}
}
