package streams_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/testenv"
	"flightline/streams"
)

// Whatever else a reader could ask for lets it write: a consumer delivers to
// any subject, and a purge needs no explanation.
func TestAReaderOfEventsMayAskForNoMore(t *testing.T) {
	want := []string{"$JS.API.CONSUMER.INFO.EVENTS.*", "$JS.API.CONSUMER.MSG.NEXT.EVENTS.*", "$JS.ACK.EVENTS.>", "$JS.API.DIRECT.GET.EVENTS"}
	if diff := cmp.Diff(want, streams.EventReader()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTheSubscribersConsumerMayBeAppliedAgain(t *testing.T) {
	b := testenv.NewServer(t)
	if err := streams.ApplySubscriber(t.Context(), b.JS); err == nil || !strings.Contains(err.Error(), streams.Subscriber) {
		t.Errorf("without the stream: got %v", err)
	}
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := streams.ApplySubscriber(t.Context(), b.JS); err != nil {
			t.Fatal(err)
		}
	}
	c, err := b.JS.Consumer(t.Context(), streams.Events, streams.Subscriber)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.CachedInfo().Config.MaxAckPending; got != 1 {
		t.Errorf("got %d events under way at once, want 1, for their order", got)
	}
}
