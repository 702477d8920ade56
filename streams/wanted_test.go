package streams_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/streams"
)

// What Apply and ApplyEndpoint have made differs in nothing from what is
// wanted, and nothing that they made is unknown.
func TestWhatIsAppliedIsWanted(t *testing.T) {
	b := start(t)
	wanted := streams.AllWanted(streams.Config{}, []endpoint.Endpoint{b.e})
	for _, w := range wanted {
		s := stream(t, b.JS, w.Config.Name)
		if diff := streams.Differences(w.Config, s.CachedInfo().Config); diff != nil {
			t.Errorf("%s: got %v, want no difference", w.Config.Name, diff)
		}
		for _, want := range w.Consumers {
			got, err := s.Consumer(t.Context(), want.Durable)
			if err != nil {
				t.Fatalf("%s of %s: %v", want.Durable, w.Config.Name, err)
			}
			if diff := streams.ConsumerDifferences(want, got.CachedInfo().Config); diff != nil {
				t.Errorf("%s of %s: got %v, want no difference", want.Durable, w.Config.Name, diff)
			}
		}
	}
	if all := len(allStreams(t, b.JS)); all != len(wanted) {
		t.Errorf("got %d wanted streams, but %d were made", len(wanted), all)
	}
}

func TestDifferencesAreToldBySetting(t *testing.T) {
	want := streams.JobsConfig(streams.Config{Replicas: 3}, "ep")
	got := streams.JobsConfig(streams.Config{}, "ep")
	got.MaxAge, got.AllowMsgTTL, got.Metadata = time.Hour, false, map[string]string{"_nats.level": "2"}
	diff := streams.Differences(want, got)
	if delta := cmp.Diff([]string{"replicas is 1, want 3", "max age is 1h0m0s, want 169h0m0s", "ttl of each message is false, want true"}, diff); delta != "" {
		t.Errorf("(-want +got):\n%s", delta)
	}
	c := jetstream.ConsumerConfig{AckWait: time.Second, MaxDeliver: -1}
	other := jetstream.ConsumerConfig{AckWait: time.Minute, MaxDeliver: -1, MaxWaiting: 512, PauseUntil: new(time.Time)}
	if delta := cmp.Diff([]string{"ack wait is 1m0s, want 1s"}, streams.ConsumerDifferences(c, other)); delta != "" {
		t.Errorf("(-want +got):\n%s", delta)
	}
}
