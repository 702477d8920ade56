package events

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"flightline/shared/testenv"
	"flightline/streams"
)

// publish stores a message of JSON in the wrong form and returns its sequence.
func publish(t *testing.T, b *testenv.Server, subject string) uint64 {
	t.Helper()
	ack, err := b.JS.Publish(t.Context(), subject, []byte(`{"seq":"x","points":7,"attempts":7,"completed":"x","records":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}

// One message that cannot be decoded, in the log, a block, the counts or a position, keeps
// nothing else from being counted. The log names it.
func TestWhatCannotBeDecodedIsLeftOut(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	var warnings bytes.Buffer
	l, err := New(b.NC, b.JS, slog.New(slog.NewTextHandler(&warnings, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c := newClock(noon.Add(3 * time.Hour))
	f := newFold(l, Counting{Now: c.now})
	entry := streams.EntrySubject("bad", func(string) bool { return false })
	bad := map[string]uint64{
		streams.Events:                       publish(t, b, entry),
		streams.Stats:                        publish(t, b, keyAt("bad", streams.StatsMinutes, "", noon).subject()),
		streams.Bucket(streams.BucketCounts): publish(t, b, streams.KeySubject(streams.BucketCounts, "bad")),
	}
	for _, position := range []string{countsPosition, statsPosition, "records_0"} {
		publish(t, b, streams.KeySubject(streams.BucketPositions, position))
	}
	if got, err := l.Checkpoint(t.Context(), "records_0"); err != nil || got.Records > 0 {
		t.Errorf("got checkpoint %+v, %v, want none", got, err)
	}
	for _, endpoint := range []string{"ep", "bad"} {
		if err := l.Append(t.Context(), runs(endpoint, 0, "")...); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, b, entry)
	points, err := l.PointsOf(t.Context(), []string{"bad"}, noon, noon.Add(time.Hour), time.Minute)
	if err != nil || len(points) > 0 {
		t.Errorf("before it was counted: got %v, %v, want no points", points, err)
	}
	if err := foldAll(t, f, c); err != nil {
		t.Fatalf("counting: %v", err)
	}
	for _, endpoint := range []string{"ep", "bad"} {
		wantTotals(t, l, endpoint, Totals{Completed: 1})
		points, err := l.Points(t.Context(), endpoint, noon, noon.Add(time.Hour), time.Minute)
		if err != nil || len(points) != 1 || points[0].Completed != 1 {
			t.Errorf("%s: got %v, %v, want a completed job", endpoint, points, err)
		}
	}
	if pos, err := l.Position(t.Context(), countsPosition); err != nil || pos != f.after || pos < 4 {
		t.Errorf("got position %d, %v, want the end of the log", pos, err)
	}
	for stream, seq := range bad {
		if want := fmt.Sprintf("stream=%s sequence=%d", stream, seq); !strings.Contains(warnings.String(), want) {
			t.Errorf("no warning has %s:\n%s", want, warnings.String())
		}
	}
}

// Readers of the log go on behind an entry that cannot be decoded, also where it is the last.
func TestReadersPassAnEntryThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l := open(t, b)
	tail := NewTail(l, nil)
	running(t, tail.Run)
	entry := streams.EntrySubject("ep", func(string) bool { return false })
	publish(t, b, entry)
	want := runs("ep", 0, "")
	if err := l.Append(t.Context(), want...); err != nil {
		t.Fatal(err)
	}
	publish(t, b, entry)
	v, err := tail.Watch(t.Context(), Watching{Endpoint: "ep", Resume: true, Once: true})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	got := 0
	for err == nil {
		var some []Event
		some, err = v.Next(t.Context())
		got += len(some)
	}
	if !errors.Is(err, io.EOF) || got != len(want) {
		t.Fatalf("watched: got %d events and %v, want %d and the end", got, err, len(want))
	}
	if page, _, err := l.Before(t.Context(), "ep", Past{Most: 10}); err != nil || len(page) != len(want) {
		t.Errorf("backwards: got %d events, %v, want %d", len(page), err, len(want))
	}
	stop := errors.New("all there")
	err = l.Follow(t.Context(), 0, func(e Event) error {
		if e.Status.Terminal() {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		t.Errorf("followed: got %v, want the end of the job", err)
	}
}
