package events

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

func TestTheCloudEventsFormOfAnEvent(t *testing.T) {
	t.Parallel()
	const head = `{"specversion":"1.0","id":"ep/a/1/`
	const times = `"submittedAt":"1970-01-01T00:00:01.000Z","queuedAt":"1970-01-01T00:00:01.000Z"`
	const links = `"links":{"status":"/v2/ep/status/a"}}}`
	list := life("ep", "a")
	for i, want := range []string{
		head + `0/queued","source":"/v2/ep","type":"job.queued","subject":"a","time":"1970-01-01T00:00:01.000Z","datacontenttype":"application/json",` +
			`"sequence":"00000000000000000007","data":{"status":"IN_QUEUE","attempt":1,"run":0,"retries":0,` + times + `,` + links,
		head + `1/started","source":"/v2/ep","type":"job.started","subject":"a","time":"1970-01-01T00:00:02.000Z","datacontenttype":"application/json",` +
			`"sequence":"00000000000000000008","data":{"status":"IN_PROGRESS","attempt":1,"run":1,"retries":0,"delayTime":1000,` + times + `,"startedAt":"1970-01-01T00:00:02.000Z",` + links,
		head + `2/started","source":"/v2/ep","type":"job.started","subject":"a","time":"1970-01-01T00:00:03.000Z","datacontenttype":"application/json",` +
			`"sequence":"00000000000000000009","data":{"status":"IN_PROGRESS","attempt":1,"run":2,"retries":1,"lostWorkers":1,"workerId":"w","delayTime":2000,` + times + `,"startedAt":"1970-01-01T00:00:03.000Z",` + links,
		head + `2/failed","source":"/v2/ep","type":"job.failed","subject":"a","time":"1970-01-01T00:00:04.000Z","datacontenttype":"application/json",` +
			`"sequence":"00000000000000000010","data":{"status":"FAILED","attempt":1,"run":2,"retries":1,"lostWorkers":1,"workerId":"w","delayTime":2000,"executionTime":1000,"error":"no",` +
			times + `,"startedAt":"1970-01-01T00:00:03.000Z","finishedAt":"1970-01-01T00:00:04.000Z","readableUntil":"1970-01-01T00:00:09.000Z",` + links,
	} {
		list[i].Seq = uint64(7 + i)
		got, err := json.Marshal(list[i].Cloud())
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestAConsumerReadsEvents(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	want := life("ep", "a")
	if err := open(t, b).Append(t.Context(), want...); err != nil {
		t.Fatal(err)
	}
	consumer, err := b.JS.CreateConsumer(t.Context(), streams.Events, jetstream.ConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	got, err := FromMsg(m)
	if err != nil || len(got) != len(want) {
		t.Fatalf("got %d events, %v", len(got), err)
	}
	for i := range want {
		if got[i].ID() != want[i].ID() || got[i].Seq != placed(1, i, len(want)) || got[i].Error != want[i].Error {
			t.Errorf("got %+v, want %s", got[i], want[i].ID())
		}
	}
}
