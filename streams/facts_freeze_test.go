package streams_test

import (
	"context"
	"errors"
	"testing"

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

// A nak with a delay takes the message off the list: the consumer that
// put it off does not get it again before.
func TestFactADelayedNakStopsARedelivery(t *testing.T) {
	t.Parallel()
	b := start(t)
	held := b.listed(t)
	b.nak(t, held, `-NAK {"delay": 3600000000000}`)
	b.none(t)
}

// The server takes the nak of a delivery that another one followed: it takes the
// message from its present holder, which gets no notice.
func TestFactANakOfAnOldDeliveryTakesTheMessageFromItsHolder(t *testing.T) {
	t.Parallel()
	b := start(t)
	old := b.listed(t)
	present := fetch(t, b.JS, b.e.ID)
	b.none(t)
	b.nak(t, old, "-NAK")
	again := fetch(t, b.JS, b.e.ID)
	meta, err := again.Metadata()
	if err != nil || again.Subject() != present.Subject() || meta.NumDelivered < 3 {
		t.Errorf("got %s, %+v, %v, want the third delivery", again.Subject(), meta, err)
	}
}

// listed is a delivery whose message is on the redelivery list. A nak puts it
// there as the end of a lease does (consumer.processNak, consumer.checkPending).
func (b env) listed(t *testing.T) jetstream.Msg {
	t.Helper()
	publish(t.Context(), t, b.JS, message(streams.JobSubject(b.e.ID, job.Normal, "job"), ""))
	held := fetch(t, b.JS, b.e.ID)
	b.nak(t, held, "-NAK")
	return held
}

// nak sends a negative acknowledgement and returns when the consumer has taken
// it: an answer to a flush says only that the server has read it.
func (b env) nak(t *testing.T, m jetstream.Msg, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if _, err := b.NC.RequestWithContext(ctx, m.Reply(), []byte(body)); err != nil {
		t.Fatal(err)
	}
}

// none asserts that the queue has nothing to deliver now.
func (b env) none(t *testing.T) {
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
