package events

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/job"
)

func TestEachEventIsThereOnceAndInOrderWithSeveralWriters(t *testing.T) {
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

// One of two appenders writes, and the other one learns of it, at the first try.
func TestAnAppenderThatWasOvertakenAppendsNoMore(t *testing.T) {
	t.Parallel()
	l := open(t, newBus(t))
	first, err := l.NewAppender(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := l.NewAppender(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := cmp.Or(first.Alone(t.Context()), first.Append(t.Context(), 0, 0, life("ep", "a")...)); err != nil {
		t.Fatal(err)
	}
	if err := second.Alone(t.Context()); !errors.Is(err, ErrOvertaken) {
		t.Errorf("got %v, want ErrOvertaken", err)
	}
	for range 2 {
		if err := second.Append(t.Context(), 0, 0, life("ep", "b")...); !errors.Is(err, ErrOvertaken) {
			t.Errorf("got %v, want ErrOvertaken", err)
		}
	}
	if err := first.Append(t.Context(), 0, 0, life("ep", "c")...); err != nil {
		t.Error(err)
	}
	if got := all(t, l); len(got) != 8 {
		t.Errorf("got %d events, want 8", len(got))
	}
}

// One entry of another process makes room for the second of an append whose first is
// refused.
func TestAnOvertakenAppendOfSeveralEntriesLeavesNone(t *testing.T) {
	t.Parallel()
	l := open(t, newBus(t))
	a, err := l.NewAppender(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, life("ep", "a")...)
	if err := a.Append(t.Context(), 0, 0, append(life("ep", "b"), life("another", "c")...)...); !errors.Is(err, ErrOvertaken) {
		t.Errorf("got %v, want ErrOvertaken", err)
	}
	if got := all(t, l); len(got) != 4 {
		t.Errorf("got %d events, want those of the other process alone, 4", len(got))
	}
}

// Many large entries keep their order.
func TestALargeAppendIsSplit(t *testing.T) {
	t.Parallel()
	const jobs, endpoints = 3000, 3
	l := open(t, newBus(t))
	var list []Event
	for i := range jobs {
		list = append(list, life(fmt.Sprintf("ep%d", i%endpoints), fmt.Sprintf("job-%04d", i))...)
	}
	mustAppend(t, l, list...)
	next := map[string]int{}
	_, want := byEndpoint(list)
	got := all(t, l)
	for i, e := range got {
		if i > 0 && e.Seq <= got[i-1].Seq {
			t.Fatalf("got sequence %d after %d", e.Seq, got[i-1].Seq)
		}
		if w := want[e.Endpoint][next[e.Endpoint]]; e.ID() != w.ID() {
			t.Fatalf("got %s, want %s", e.ID(), w.ID())
		}
		next[e.Endpoint]++
	}
	last, err := l.lastEntry(t.Context())
	if err != nil || len(got) != len(list) || last < 2*endpoints || last > jobs/20 {
		t.Errorf("got %d events of %d in %d entries, %v", len(got), len(list), last, err)
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

func TestAppendDuringAnOutage(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l := open(t, b)
	a, err := l.NewAppender(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Append(t.Context(), 0, 0, life("ep", "a")[:2]...); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	if err := a.Append(t.Context(), 0, 0, life("ep", "a")[2:]...); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("got %v, want bus.ErrUnavailable", err)
	}
	if _, _, err := l.Last(t.Context(), "ep", "a", time.Time{}, 0); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("got %v, want bus.ErrUnavailable", err)
	}
	b.Start()
	mustAppend(t, l, life("ep", "a")...)
	if got := all(t, l); len(got) != 4 {
		t.Errorf("got %d events, want 4", len(got))
	}
}
