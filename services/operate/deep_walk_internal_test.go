package operate

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus/bustest"
)

// A walk reads each message that was there when it began once, passes over what
// was deleted, and ends soon after its context.
func TestAWalkReadsAllAndObeysItsContext(t *testing.T) {
	t.Parallel()
	const all = 600
	b := bustest.New(t)
	s, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if _, err := b.JS.Publish(t.Context(), fmt.Sprintf("s.%d", i), make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	for _, seq := range []uint64{1, 2, 300, 450, all} {
		if err := s.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	read := map[string]bool{}
	w := &walk{nc: b.NC, js: b.JS, stream: "S", each: func(m *nats.Msg) error { read[m.Header.Get(jetstream.SubjectHeader)] = true; return nil }}
	if err := w.run(t.Context()); err != nil || len(read) != all-5 || w.read != all-5 {
		t.Errorf("got %d messages, %d counted, %v, want %d", len(read), w.read, err, all-5)
	}
	if l, err := w.damage(t.Context()); err != nil || l.unreadable != 0 || l.lost != nil {
		t.Errorf("got %+v, %v, want no damage", l, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w = &walk{nc: b.NC, js: b.JS, stream: "S", each: func(*nats.Msg) error { cancel(); return nil }}
	if err := w.run(ctx); !errors.Is(err, context.Canceled) || w.read > all/2 {
		t.Errorf("cancelled: got %v after %d messages", err, w.read)
	}
	w = &walk{nc: b.NC, js: b.JS, stream: "MISSING"}
	if err := w.run(t.Context()); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no such stream: got %v", err)
	}
}
