package app

import (
	"testing"

	"flightline/shared/bus/embedded"
	"flightline/streams"
)

// Of damage to each stream that there is, the log says what it means.
func TestEachDamageHasAMeaning(t *testing.T) {
	told := map[string]bool{}
	for _, name := range append(streams.Shared(streams.Config{}), streams.Jobs("ep"), "ORDERS") {
		means := meaningOf(embedded.Damage{Stream: name, Messages: 1})
		if means == "" {
			t.Errorf("%s: got no meaning", name)
		}
		told[means] = true
	}
	if len(told) != 11 {
		t.Errorf("got %d meanings, want one for each part, one for heartbeats and one for other streams", len(told))
	}
}
