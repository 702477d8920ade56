package streams_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// F10: an ack is welcome whatever became of its message, so it proves nothing.
func TestF10AnAckProvesNothing(t *testing.T) {
	for name, remove := range map[string]func(b env, held jetstream.Msg) error{
		"deleted": func(b env, held jetstream.Msg) error {
			meta, err := held.Metadata()
			if err != nil {
				return err
			}
			return stream(t, b.JS, streams.Jobs(b.e.ID)).DeleteMsg(t.Context(), meta.Sequence.Stream)
		},
		"purged": func(b env, held jetstream.Msg) error {
			return stream(t, b.JS, streams.Jobs(b.e.ID)).Purge(t.Context(), jetstream.WithPurgeSubject(held.Subject()))
		},
		"acknowledged": func(_ env, held jetstream.Msg) error {
			return held.Ack()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			publish(t.Context(), t, b.JS, message(streams.JobSubject(b.e.ID, job.Normal, "job"), ""))
			held := fetch(t, b.JS, b.e.ID)
			second := secondAck(b, held)
			if err := remove(b, held); err != nil {
				t.Fatal(err)
			}
			if err := second(t.Context()); err != nil {
				t.Errorf("the server now refuses this ack (%v): what rests on F10 may be made simpler", err)
			}
		})
	}
}

// secondAck acknowledges as another process would that knows the subject: the
// client library itself refuses to do it twice.
func secondAck(b env, held jetstream.Msg) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := b.NC.RequestWithContext(ctx, held.Reply(), []byte("+ACK"))
		return err
	}
}

// A ttl change publishes a queue message again: the new one takes the place of
// the old one, also while a worker holds that, and the old one's ack does it
// no harm.
func TestAReplacedMessageIsDeliveredAnew(t *testing.T) {
	t.Parallel()
	b := start(t)
	subject := streams.JobSubject(b.e.ID, job.Normal, "job")
	seq := publish(t.Context(), t, b.JS, after(0, subject, "old"))
	old := fetch(t, b.JS, b.e.ID)
	publish(t.Context(), t, b.JS, after(seq, subject, "new"))
	replaced := fetch(t, b.JS, b.e.ID)
	if got := string(replaced.Data()); got != "new" {
		t.Errorf("got %q delivered, want the new one", got)
	}
	if err := old.DoubleAck(t.Context()); err != nil {
		t.Errorf("ack of the old one: %v", err)
	}
	if _, err := stream(t, b.JS, streams.Jobs(b.e.ID)).GetLastMsgForSubject(t.Context(), subject); err != nil {
		t.Errorf("the old one's ack removed the new one: %v", err)
	}
}

// Any process that knows the ack subject can extend, give back and end a
// lease: a record carries it.
func TestAnyProcessMayUseAnAckSubject(t *testing.T) {
	t.Parallel()
	b := start(t)
	other := b.Connect(t)
	subject := streams.JobSubject(b.e.ID, job.Normal, "job")
	publish(t.Context(), t, b.JS, message(subject, ""))
	held := fetch(t, b.JS, b.e.ID)
	if err := other.Publish(held.Reply(), []byte("-NAK")); err != nil {
		t.Fatal(err)
	}
	again := fetch(t, b.JS, b.e.ID) // at once, not after the lease of 30 s
	meta, err := again.Metadata()
	if err != nil || meta.NumDelivered != 2 {
		t.Errorf("got delivery %+v, %v, want the second", meta, err)
	}
	if _, err := other.Request(again.Reply(), []byte("+ACK"), within); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the message is gone", gone(t, stream(t, b.JS, streams.Jobs(b.e.ID)), subject))
}

// The server knows no ttl below a second, so ours are rounded up.
func TestATTLBelowASecondIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t)
	_, err := b.JS.PublishMsg(t.Context(), message(streams.JobSubject(b.e.ID, job.Normal, "job"), "", jetstream.MsgTTLHeader, "500ms"))
	if _, refused := errors.AsType[*jetstream.APIError](err); !refused {
		t.Errorf("got %v, want it refused", err)
	}
}

// A Put of the KV API drops the ttl of the key, so records are published.
func TestAPutDropsTheTTL(t *testing.T) {
	t.Parallel()
	b := start(t)
	const key, canary = "r.ep.job.1", "r.ep.canary.1"
	records, err := b.JS.KeyValue(t.Context(), "records_0")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{key, canary} {
		if _, err := records.Create(t.Context(), k, nil, jetstream.KeyTTL(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := records.Put(t.Context(), key, []byte("again")); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the key that was left alone expires", func() bool {
		_, err := records.Get(t.Context(), canary)
		return errors.Is(err, jetstream.ErrKeyNotFound)
	})
	if _, err := records.Get(t.Context(), key); err != nil {
		t.Errorf("got %v: a Put keeps the ttl now", err)
	}
}

// The answer to stream info has the server's own time: that is where every
// process takes its clock from.
func TestStreamInfoTellsTheServersTime(t *testing.T) {
	t.Parallel()
	b := start(t)
	before := time.Now()
	info, err := stream(t, b.JS, streams.Records(0)).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.TimeStamp.Before(before) || info.TimeStamp.After(time.Now()) {
		t.Errorf("got %v, want an instant after %v and before now", info.TimeStamp, before)
	}
}

// F14: a server that stopped between an ack and the removal of its message keeps
// that, and says nothing of it.
func TestF14WhatWasAcknowledgedStaysIfTheServerStopsBeforeItRemovesIt(t *testing.T) {
	t.Parallel()
	b := start(t)
	back := func() {
		b.Start()
		testenv.Eventually(t, "the server is back", func() bool {
			_, err := b.JS.Stream(t.Context(), streams.Jobs(b.e.ID))
			return err == nil
		})
	}
	publish(t.Context(), t, b.JS, message(streams.JobSubject(b.e.ID, job.Normal, "job"), ""))
	held := fetch(t, b.JS, b.e.ID)
	b.Stop()
	restore := b.SaveMessages(t, streams.Jobs(b.e.ID))
	back()
	if err := held.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	restore()
	back()
	c, err := b.JS.Consumer(t.Context(), streams.Jobs(b.e.ID), streams.Consumer(job.Normal))
	if err != nil {
		t.Fatal(err)
	}
	if info := c.CachedInfo(); info.NumPending != 0 || info.NumAckPending != 0 || info.AckFloor.Stream != 1 {
		t.Errorf("got %d waiting, %d out, ack floor %d; want it acknowledged", info.NumPending, info.NumAckPending, info.AckFloor.Stream)
	}
	if n := b.Messages(t, streams.Jobs(b.e.ID)); n != 1 {
		t.Errorf("got %d messages, want the one: if the server removes it now, deliveries.removeLeftovers may go", n)
	}
}
