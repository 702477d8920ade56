package streams_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"flightline/shared/testenv"
	"flightline/streams"
)

// A process that may not make streams waits for what is missing, and for the
// upgrade of an older bus, and gives up on a newer one.
func TestCheckWaitsForThisSchema(t *testing.T) {
	if err := streams.Check(t.Context(), testenv.NewServer(t).JS, streams.Config{}); !errors.Is(err, streams.ErrMissing) {
		t.Errorf("nothing: got %v, want ErrMissing", err)
	}
	b := start(t)
	for version, want := range map[string]error{
		"": streams.ErrMissing, "0": streams.ErrMissing, strconv.Itoa(streams.Schema - 1): streams.ErrMissing,
		strconv.Itoa(streams.Schema): nil, strconv.Itoa(streams.Schema + 1): streams.ErrSchema,
	} {
		mark(t, b.JS, version)
		err := streams.Check(t.Context(), b.JS, streams.Config{})
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%q: got %v, want %v", version, err, want)
		}
		if errors.Is(want, streams.ErrMissing) && (err == nil || !strings.Contains(err.Error(), "control, first")) {
			t.Errorf("%q: got %q, want what to do", version, err)
		}
	}
	mark(t, b.JS, strconv.Itoa(streams.Schema))
	if err := b.JS.DeleteStream(t.Context(), streams.Undelivered); err != nil {
		t.Fatal(err)
	}
	if err := streams.Check(t.Context(), b.JS, streams.Config{}); !errors.Is(err, streams.ErrMissing) || !strings.Contains(err.Error(), streams.Undelivered) {
		t.Errorf("got %v, want ErrMissing with its name", err)
	}
}

// What is made for the first time was not lost.
func TestLostIsWhatWasMadeBefore(t *testing.T) {
	one, two, used := streams.Config{}, streams.Config{Partitions: 2}, streams.RecordSubject(0, "ep", "job", 1)
	b := start(t)
	want := func(what string, c streams.Config, want ...string) {
		t.Helper()
		if got, err := streams.Lost(t.Context(), b.JS, c); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := b.JS.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := streams.Lost(t.Context(), testenv.NewServer(t).JS, one); err != nil || len(got) > 0 {
		t.Errorf("an empty server: got %v, %v, want none", got, err)
	}
	want("all is there", one)
	want("a new partition", two)
	if err := streams.Apply(t.Context(), b.JS, two); err != nil {
		t.Fatal(err)
	}
	remove(streams.Output(1))
	want("a stream of a partition", two, streams.Output(1))
	endpoints := streams.Bucket(streams.BucketEndpoints)
	remove(endpoints)
	want("a start that did not come to its end", two)
	if _, err := b.JS.Publish(t.Context(), used, nil); err != nil {
		t.Fatal(err)
	}
	want("the bucket of endpoints", two, streams.Output(1), endpoints)
	if err := streams.Apply(t.Context(), b.JS, two); err != nil {
		t.Fatal(err)
	}
	want("all is there again", two)
	remove(streams.Undelivered)
	want("a stream", two, streams.Undelivered)
	mark(t, b.JS, strconv.Itoa(streams.Schema-1))
	want("before an upgrade", two)
}
