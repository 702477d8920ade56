package streams_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/streams"
)

// A message whose lease ended while nobody pulled is on the server's redelivery
// list. A heartbeat starts the lease again and does not take the message off, so
// the next pull gets it although its holder lives (nats-server 2.15.2,
// consumer.progressUpdate).
func TestFactHeartbeatsDoNotStopARedelivery(t *testing.T) {
	t.Parallel()
	b := start(t)
	held := b.listed(t)
	for range 3 {
		if err := b.NC.Publish(held.Reply(), []byte("+WPI")); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	if again := fetch(t, b.JS, b.e.ID); again.Subject() != held.Subject() {
		t.Errorf("got %s, want the held message again", again.Subject())
	}
}

// A nak with a delay takes the message off the list: whoever put it off is not
// given it again before.
func TestFactADelayedNakStopsARedelivery(t *testing.T) {
	t.Parallel()
	b := start(t)
	held := b.listed(t)
	if err := held.NakWithDelay(time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := b.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	b.none(t)
}

// The server takes the nak of a delivery that another one followed: it takes the
// message from its present holder, who hears nothing of it.
func TestFactANakOfAnOldDeliveryTakesTheMessageFromItsHolder(t *testing.T) {
	t.Parallel()
	b := start(t)
	old := b.listed(t)
	present := fetch(t, b.JS, b.e.ID)
	b.none(t)
	if err := b.NC.Publish(old.Reply(), []byte("-NAK")); err != nil {
		t.Fatal(err)
	}
	again := fetch(t, b.JS, b.e.ID)
	meta, err := again.Metadata()
	if err != nil || again.Subject() != present.Subject() || meta.NumDelivered < 3 {
		t.Errorf("got %s, %+v, %v, want the third delivery", again.Subject(), meta, err)
	}
}

// listed is a delivery whose message is on the redelivery list. A nak puts it
// there as the end of a lease does (consumer.processNak, consumer.checkPending).
func (b site) listed(t *testing.T) jetstream.Msg {
	t.Helper()
	publish(t.Context(), t, b.JS, message(streams.JobSubject(b.e.ID, job.Normal, "job"), ""))
	held := fetch(t, b.JS, b.e.ID)
	if err := b.NC.Publish(held.Reply(), []byte("-NAK")); err != nil {
		t.Fatal(err)
	}
	if err := b.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	return held
}

// none asserts that the queue has nothing to deliver now.
func (b site) none(t *testing.T) {
	t.Helper()
	c, err := b.JS.Consumer(t.Context(), streams.Jobs(b.e.ID), streams.Consumer(job.Normal))
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.FetchNoWait(1)
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		t.Errorf("got %s, want nothing", m.Subject())
	}
	if err := batch.Error(); err != nil && !errors.Is(err, jetstream.ErrNoMessages) {
		t.Fatal(err)
	}
}
