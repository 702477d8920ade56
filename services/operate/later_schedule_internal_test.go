package operate

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus/bustest"
	"flightline/streams"
)

// A deadline that was due while a backup was made is brought back with the rest.
func TestWhatAScheduleMadeIsReplayed(t *testing.T) {
	b, other := bustest.New(t), bustest.New(t)
	for _, bus := range []*bustest.Bus{b, other} {
		if err := streams.Apply(t.Context(), bus.JS, streams.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	due := streams.DueSubject(0, "ep", "job", 1)
	m := nats.NewMsg(streams.RecordSubject(0, "ep", "job", 1))
	m.Header.Set(jetstream.ScheduleHeader, "@every 1s")
	m.Header.Set(jetstream.ScheduleTargetHeader, due)
	m.Header.Set(jetstream.ScheduleTTLHeader, "1h")
	if _, err := b.JS.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	s, err := b.JS.Stream(t.Context(), streams.Records(0))
	if err != nil {
		t.Fatal(err)
	}
	var made *jetstream.RawStreamMsg
	for late := time.Now().Add(2 * time.Minute); made == nil; <-time.After(10 * time.Millisecond) {
		if made, _ = s.GetLastMsgForSubject(t.Context(), due); time.Now().After(late) {
			t.Fatal("the schedule made nothing")
		}
	}
	line, err := json.Marshal(message{Seq: made.Sequence, Subject: made.Subject, Time: made.Time, Header: made.Header, Body: made.Data})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := replay(t.Context(), other.JS, streams.Records(0), bytes.NewReader(line)); n != 1 || err != nil {
		t.Errorf("got %d messages, %v, want the one that was due", n, err)
	}
}
