package streams_test

import (
	"errors"
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
