package streams_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/testenv"
	"flightline/streams"
)

// While the mark of a restore is there nothing is made; without it all is.
func TestApplyRefusesHalfARestore(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	// With its last stream the server removes the account's folder, and fails for a moment to
	// make another one there. A restore has streams when the mark goes.
	if _, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER"}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // each step may be repeated
		if err := streams.BeginRestore(t.Context(), b.JS, streams.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	err := streams.Apply(t.Context(), b.JS, streams.Config{})
	if !errors.Is(err, streams.ErrRestoring) || !strings.Contains(err.Error(), "run flightline restore again") {
		t.Errorf("got %v, want an ErrRestoring that says what to do", err)
	}
	if info, err := b.JS.AccountInfo(t.Context()); err != nil || info.Streams != 2 {
		t.Errorf("got %+v, %v, want the mark and what was there", info, err)
	}
	for range 2 {
		if err := streams.EndRestore(t.Context(), b.JS); err != nil {
			t.Fatal(err)
		}
	}
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Error(err)
	}
}

// No backup copies the mark, and no other stream takes its subject.
func TestTheMarkOfARestoreIsNoData(t *testing.T) {
	t.Parallel()
	if part, ours := streams.PartOf(streams.Restoring); ours {
		t.Errorf("got part %d, want none", part)
	}
	if p := streams.PermissionsOf(streams.Config{}, streams.RoleControl, ""); !slices.Contains(p.Publish, bus.StreamInfo("*")) {
		t.Error("control may not look for the mark")
	}
}
