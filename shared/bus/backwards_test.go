package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

// written is a stream of n messages of the endpoints a and b, of which those in
// gone were deleted again.
func written(t *testing.T, b *testenv.Server, name string, n int, subject func(i int) string, gone func(i int) bool) jetstream.Stream {
	t.Helper()
	stream, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"}, AllowDirect: true, MaxMsgsPerSubject: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= n; i++ {
		if _, err := b.JS.PublishAsync(subject(i), []byte("body")); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 || i == n { // more at a time than the server keeps up with is an error
			<-b.JS.PublishAsyncComplete()
		}
	}
	for i := 1; i <= n; i++ {
		if gone(i) {
			if err := stream.DeleteMsg(t.Context(), uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return stream
}

func sequences(got []*nats.Msg) []int {
	var seqs []int
	for _, m := range got {
		seqs = append(seqs, int(bus.Sequence(m)))
	}
	return seqs
}

// Whatever is in a stream, walking it backwards page by page brings every
// message of the filter once, the newest first.
func TestBackwardsBringsEveryMessageOnce(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	streams := 0
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 400).Draw(r, "written")
		mine := rapid.SliceOfN(rapid.Bool(), n+1, n+1).Draw(r, "mine")
		gone := rapid.SliceOfN(rapid.IntRange(0, rapid.IntRange(1, 20).Draw(r, "density")), n+1, n+1).Draw(r, "gone")
		streams++
		name := "s" + strconv.Itoa(streams)
		written(t, b, name, n, func(i int) string {
			if mine[i] {
				return fmt.Sprintf("%s.mine.%d", name, i)
			}
			return fmt.Sprintf("%s.other.%d", name, i)
		}, func(i int) bool { return gone[i] > 0 })
		var want []int
		for i := n; i > 0; i-- {
			if mine[i] && gone[i] == 0 {
				want = append(want, i)
			}
		}
		back := bus.Back{
			Stream: name, Filter: name + ".mine.*", First: 1,
			Before: uint64(n + 1), Most: rapid.IntRange(1, 60).Draw(r, "page"),
		}
		var got []int
		for pages := 0; back.Before > 0; pages++ {
			page, next, err := bus.Bind(b.NC).Backwards(t.Context(), back)
			if err != nil || len(page) > back.Most || pages > n+1 {
				r.Fatalf("page %d: got %d messages, %v", pages, len(page), err)
			}
			got = append(got, sequences(page)...)
			back.Before = next
		}
		if !slices.Equal(got, want) {
			r.Fatalf("got %v, want %v", got, want)
		}
	})
}

// The length of a stream costs a trip for each factor of sixteen.
func TestBackwardsCostsTheSameInALongStream(t *testing.T) {
	b := testenv.NewServer(t)
	const n = 20_000
	subject := func(i int) string { return fmt.Sprintf("long.%d", i) }
	stream := written(t, b, "long", n, subject, func(int) bool { return false })
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(n-5)); err != nil {
		t.Fatal(err)
	}
	asked := func(back bus.Back) (int, []int) {
		before := b.NC.Stats().OutMsgs
		got, _, err := bus.Bind(b.NC).Backwards(t.Context(), back)
		if err != nil {
			t.Fatal(err)
		}
		return int(b.NC.Stats().OutMsgs - before), sequences(got)
	}
	back := bus.Back{Stream: "long", Filter: ">", First: 1, Before: n + 1, Most: 10}
	requests, got := asked(back)
	if want := []int{n, n - 1, n - 2, n - 3, n - 4, n - 5}; !slices.Equal(got, want) || requests > 100 {
		t.Errorf("the end of a stream that is empty else: got %v with %d requests, want %v with 100 at most", got, requests, want)
	}
	if _, err := b.JS.Publish(t.Context(), "long.again", nil); err != nil {
		t.Fatal(err)
	}
	back.Before = n + 2
	if requests, got = asked(bus.Back{Stream: back.Stream, Filter: ">", First: 1, Before: n + 2, Most: 1}); requests > 10 || !slices.Equal(got, []int{n + 1}) {
		t.Errorf("the last message: got %v with %d requests", got, requests)
	}
}

func TestBackwardsWithoutJetStream(t *testing.T) {
	b := testenv.NewServer(t)
	within, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _, err := bus.Bind(b.NC).Backwards(within, bus.Back{Stream: "none", Filter: ">", First: 1, Before: 9, Most: 3})
	if !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("no such stream: got %v, want ErrUnavailable", err)
	}
	got, next, err := bus.Bind(b.NC).Backwards(t.Context(), bus.Back{First: 9, Before: 9, Most: 3})
	if len(got) > 0 || next != 0 || err != nil {
		t.Errorf("nothing to look at: got %v, %d, %v", got, next, err)
	}
}

func TestLastOfReadsTheNewestOfEachSubject(t *testing.T) {
	b := testenv.NewServer(t)
	const n = 1300 // more than one request may name
	written(t, b, "last", n, func(i int) string { return fmt.Sprintf("last.%d.x", i) }, func(i int) bool { return i == 7 })
	subjects := []string{"last.none", "last.*.y"}
	for i := 1; i <= n; i++ {
		subjects = append(subjects, fmt.Sprintf("last.%d.*", i))
	}
	got, err := bus.Bind(b.NC).LastOf(t.Context(), "last", subjects)
	if err != nil {
		t.Fatal(err)
	}
	seqs := sequences(got)
	slices.Sort(seqs)
	if len(slices.Compact(seqs)) != n-1 || slices.Contains(seqs, 7) || got[0].Data != nil {
		t.Errorf("got %d messages, want all of %d but the seventh", len(seqs), n)
	}
}
