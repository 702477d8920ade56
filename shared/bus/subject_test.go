package bus_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

// Headers of a writer, with the names of the server's own, are not taken for those.
func TestWhereAMessageIsIsTheServersWord(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	if _, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	forged := &nats.Msg{Subject: "s.mine", Header: nats.Header{
		jetstream.SubjectHeader: {"s.theirs"}, jetstream.SequenceHeader: {"99"}, jetstream.TimeStampHeaer: {"2000-01-01T00:00:00Z"},
	}}
	if _, err := b.JS.PublishMsg(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	got, err := bus.Bind(b.NC).BatchGet(t.Context(), "S", bus.Batch{Filter: ">", Most: 1})
	if err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v, want one message", got, err)
	}
	at, err := bus.StoredAt(got[0])
	if subject, seq := bus.SubjectOf(got[0]), bus.Sequence(got[0]); subject != "s.mine" || seq != 1 || err != nil || time.Since(at) > time.Hour {
		t.Errorf("got %s, %d, %v, %v, want s.mine, 1 and now", subject, seq, at, err)
	}
}
