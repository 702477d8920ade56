package streams_test

import (
	"reflect"
	"slices"
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

// Every setting of a stream that Apply makes is compared: what is not would
// never be brought to a stream that exists.
func TestEverySettingOfAStreamIsCompared(t *testing.T) {
	e := endpointOf(t, "ep")
	fixed := []string{"Name", "DenyDelete"} // cannot be changed afterwards
	for _, w := range streams.AllWanted(streams.Config{Replicas: 3}, []endpoint.Endpoint{e}) {
		compared(t, w.Config, fixed, func(got jetstream.StreamConfig) []string { return streams.Differences(w.Config, got) })
		for _, c := range w.Consumers {
			compared(t, c, []string{"Durable", "PauseUntil"}, func(got jetstream.ConsumerConfig) []string { return streams.ConsumerDifferences(c, got) })
		}
	}
}

// compared clears each field that want sets, one at a time, and looks for a
// difference.
func compared[T any](t *testing.T, want T, fixed []string, differences func(got T) []string) {
	t.Helper()
	fields := reflect.TypeFor[T]()
	for i := range fields.NumField() {
		got := want
		field := reflect.ValueOf(&got).Elem().Field(i)
		if name := fields.Field(i).Name; field.IsZero() || slices.Contains(fixed, name) {
			continue
		}
		field.SetZero()
		if differences(got) == nil {
			t.Errorf("%v: no difference without %s", want, fields.Field(i).Name)
		}
	}
}
