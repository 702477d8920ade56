package bus_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

// The oldest messages go, none from keep on, and nothing while there is room.
func TestTrim(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	s, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LOG", Subjects: []string{"log.>"}})
	if err != nil {
		t.Fatal(err)
	}
	const all = 1000
	for i := range all {
		if _, err := b.JS.Publish(t.Context(), fmt.Sprintf("log.%d", i), make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	const none = 1 << 62
	for _, step := range []struct {
		maxBytes     int64
		keep         uint64
		first, least uint64 // what is left begins there, at the latest at least
	}{
		{2 << 20, none, 1, 1},
		{500_000, 200, 200, 200},
		{500_000, none, 500, 600},
		{500_000, none, 500, 600},
		{1, none, all + 1, all + 1},
	} {
		before := state(t, s)
		removed, err := bus.Trim(t.Context(), b.JS, "LOG", step.maxBytes, step.keep)
		after := state(t, s)
		if err != nil || after.FirstSeq < step.first || after.FirstSeq > step.least || removed != before.Msgs-after.Msgs {
			t.Errorf("%+v: got %d removed, %v, and %+v", step, removed, err, after)
		}
		if step.keep == none && int64(after.Bytes) > step.maxBytes {
			t.Errorf("%+v: got %d bytes left", step, after.Bytes)
		}
	}
	if _, err := bus.Trim(t.Context(), b.JS, "MISSING", 1, none); err == nil {
		t.Error("no such stream: got no error")
	}
}

// While NATS is away, the size is tried every 5 s, and a line a minute is logged.
func TestKeepTrimmedOfAnOutageLogsALineAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute-time.Second)
		defer cancel()
		tried := 0
		var out bytes.Buffer
		bus.KeepTrimmed(ctx, slog.New(slog.NewTextHandler(&out, nil)), "events", 1, func(context.Context, int64) (uint64, error) {
			tried++
			return 0, bus.ErrUnavailable
		})
		if lines := strings.Count(out.String(), "\n"); tried < 30 || lines != 3 {
			t.Errorf("got %d tries and %d lines, want 3: %s", tried, lines, out.String())
		}
	})
}

// Most sequences of a stream may have no message any more, as those of dead letters that
// were sent again: what is left is counted by messages, not by sequences.
func TestTrimOfAStreamWithGaps(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	s, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "GAPS", Subjects: []string{"gaps.>"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		ack, err := b.JS.Publish(t.Context(), fmt.Sprintf("gaps.%d", i), make([]byte, 1000))
		if err == nil && i%10 > 0 {
			err = s.DeleteMsg(t.Context(), ack.Sequence)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	before := state(t, s) // 100 messages
	removed, err := bus.Trim(t.Context(), b.JS, "GAPS", 80_000, 1<<62)
	after := state(t, s)
	if err != nil || removed != before.Msgs-after.Msgs || after.Bytes > 80_000 || after.Bytes < 60_000 {
		t.Errorf("got %d removed, %v, and %+v", removed, err, after)
	}
}

func state(t *testing.T, s jetstream.Stream) jetstream.StreamState {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State
}
