package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/bus/barrier"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// tail runs a Tail until the end of the test.
func tail(t *testing.T, l *Log, durable barrier.Func) *Tail {
	t.Helper()
	tail := NewTail(l, durable)
	running(t, tail.Run)
	return tail
}

func watch(t *testing.T, tail *Tail, w Watching) *Watch {
	t.Helper()
	v, err := tail.Watch(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

// some reads n events, or all there are if n is 0, and names them.
func (v *Watch) some(t *testing.T, n int) (got []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n == 0 || len(got) < n {
		page, err := v.Next(ctx)
		for _, e := range page {
			got = append(got, e.ID())
		}
		if errors.Is(err, io.EOF) {
			return got
		}
		if errors.Is(err, bus.ErrUnavailable) {
			continue
		}
		if err != nil || ctx.Err() != nil {
			t.Fatalf("after %d events of %d: %v", len(got), n, err)
		}
	}
	return got
}

func ids(list []Event) []string {
	var all []string
	for _, e := range list {
		all = append(all, e.ID())
	}
	return all
}

func mustAppend(t *testing.T, l *Log, list ...Event) {
	t.Helper()
	if err := appendAgain(t, l, list); err != nil {
		t.Fatal(err)
	}
}

// appendAgain does what the recorder does: it looks what is there, and appends the
// rest, until it could.
func appendAgain(t *testing.T, l *Log, list []Event) error {
	t.Helper()
	for late := time.Now().Add(patience); ; {
		err := appendRest(t.Context(), l, list)
		if !errors.Is(err, bus.ErrUnavailable) && !errors.Is(err, ErrOvertaken) || time.Now().After(late) {
			return err
		}
	}
}

func appendRest(ctx context.Context, l *Log, list []Event) error {
	a, err := l.NewAppender(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	if err := l.Scan(ctx, 1, func(entry Entry) bool {
		for _, e := range entry.Events {
			there[e.ID()] = true
		}
		return true
	}); err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(list), func(e Event) bool { return there[e.ID()] })
	return a.Append(ctx, 0, 0, rest...)
}

func TestAWatchBeginsWhereItIsTold(t *testing.T) {
	t.Parallel()
	l := open(t, newBus(t))
	before, after := life("ep", "a"), life("ep", "b")
	mustAppend(t, l, before[:3]...)
	mustAppend(t, l, before[3:]...)
	mustAppend(t, l, life("other", "a")...)
	old, _, err := l.Last(t.Context(), "ep", "a", time.Time{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	tail := tail(t, l, nil)
	views := map[string]struct {
		w    Watching
		want []string
	}{
		"now":               {Watching{}, ids(after)},
		"all":               {Watching{Resume: true}, append(ids(before), ids(after)...)},
		"behind the second": {Watching{Resume: true, After: placed(1, 1, 3)}, append(ids(before[2:]), ids(after)...)},
		"beyond the end":    {Watching{Resume: true, After: placed(1000, 1, 3)}, append(ids(before), ids(after)...)},
		"since an hour":     {Watching{Since: time.Now().Add(-time.Hour)}, append(ids(before), ids(after)...)},
		"since the last":    {Watching{Since: old.Written}, append(ids(before[3:]), ids(after)...)},
		"since later":       {Watching{Since: time.Now().Add(time.Hour)}, ids(after)},
		"a job":             {Watching{Resume: true, Job: "b"}, ids(after)},
		"not before":        {Watching{Resume: true, NotBefore: old.Written}, append(ids(before[3:]), ids(after)...)},
		"a kind":            {Watching{Resume: true, Kinds: []Kind{Failed}}, []string{before[3].ID(), after[3].ID()}},
		"kinds":             {Watching{Resume: true, Kinds: []Kind{Failed, Queued}}, []string{before[0].ID(), before[3].ID(), after[0].ID(), after[3].ID()}},
	}
	watches := map[string]*Watch{}
	for name, view := range views {
		view.w.Endpoint = "ep"
		watches[name] = watch(t, tail, view.w)
	}
	mustAppend(t, l, after...)
	for name, view := range views {
		if got := watches[name].some(t, len(view.want)); !cmp.Equal(got, view.want) {
			t.Errorf("%s: got %q, want %q", name, got, view.want)
		}
	}
}

func TestAWatchThatIsOnceEndsWithWhatThereIs(t *testing.T) {
	t.Parallel()
	l := open(t, newBus(t))
	tail := tail(t, l, nil)
	if got := watch(t, tail, Watching{Endpoint: "ep", Once: true, Resume: true}).some(t, 0); got != nil {
		t.Errorf("of an empty log: got %q", got)
	}
	list := life("ep", "a")
	mustAppend(t, l, list...)
	all := watch(t, tail, Watching{Endpoint: "ep", Once: true, Resume: true})
	later := watch(t, tail, Watching{Endpoint: "ep", Once: true, Resume: true, Submitted: at(1001)})
	mustAppend(t, l, life("ep", "b")...)
	if got := all.some(t, 0); !cmp.Equal(got, ids(list)) {
		t.Errorf("got %q, want %q", got, ids(list))
	}
	if got := later.some(t, 0); got != nil {
		t.Errorf("of an endpoint that was made later: got %q, want none", got)
	}
}

// Watchers that begin anywhere and stop anywhere, while others write and the
// server is away for a moment, hear each event once and in order.
func TestWatchersHearEachEventOnceAndInOrder(t *testing.T) {
	t.Parallel()
	const jobs, watchers = 1500, 8
	b := newBus(t)
	l := open(t, b)
	var list []Event
	for i := range jobs {
		list = append(list, life("ep", fmt.Sprintf("j%d", i))...)
		list = append(list, life("other", fmt.Sprintf("j%d", i))...)
	}
	mustAppend(t, l, list[:len(list)/4]...)
	var durable barrier.Func = func(context.Context, string) error { return nil }
	tail := tail(t, open(t, b), durable)
	var g errgroup.Group
	for n := range watchers {
		g.Go(func() error { return stopAndGo(t.Context(), tail, 4*jobs, 50+400*n) })
	}
	mustAppend(t, l, list[:len(list)/2]...)
	b.Stop()
	b.Start()
	mustAppend(t, l, list...)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "nobody is left", func() bool { return !tail.watched() })
}

// stopAndGo reads n events, and begins again behind the last after each part.
func stopAndGo(ctx context.Context, tail *Tail, n, part int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	told, after, count := map[job.ID]int{}, uint64(0), 0
	for count < n && ctx.Err() == nil {
		v, err := tail.Watch(ctx, Watching{Endpoint: "ep", Resume: true, After: after})
		if errors.Is(err, bus.ErrUnavailable) {
			continue
		}
		if err != nil {
			return err
		}
		for got := 0; got < part && count < n && ctx.Err() == nil; {
			page, err := v.Next(ctx)
			if err != nil && !errors.Is(err, bus.ErrUnavailable) {
				return err
			}
			for _, e := range page {
				want := life("ep", string(e.Job))[told[e.Job]]
				if e.ID() != want.ID() || e.Seq <= after {
					return fmt.Errorf("got %s at %d after %d, want %s", e.ID(), e.Seq, after, want.ID())
				}
				told[e.Job]++
				after = e.Seq
			}
			got, count = got+len(page), count+len(page)
		}
		v.Close()
	}
	if count < n {
		return fmt.Errorf("got %d events, want %d", count, n)
	}
	return nil
}

func TestNobodyIsAskedWhileNobodyWatches(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	conn := b.Connect(t)
	l, err := New(conn, b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	tail := tail(t, l, nil)
	v := watch(t, tail, Watching{Endpoint: "ep"})
	testenv.Eventually(t, "it reads", func() bool { return conn.Stats().OutMsgs > 3 })
	v.Close()
	testenv.Eventually(t, "it does no more", func() bool {
		before := conn.Stats().OutMsgs
		<-time.After(3 * pollInterval)
		return conn.Stats().OutMsgs == before
	})
}
