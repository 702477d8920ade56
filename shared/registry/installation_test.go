package registry_test

import (
	"regexp"
	"sync"
	"testing"

	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestAnInstallationHasOneIDForAll(t *testing.T) {
	b, other := newBus(t), anotherBus(t)
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			var err error
			if ids[i], err = registry.Installation(t.Context(), b.JS); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] || !regexp.MustCompile(`^fl-[0-9a-f]{12}$`).MatchString(id) {
			t.Errorf("got %q, want one of fl- and 12 digits for all", ids)
			break
		}
	}
	b.Stop()
	b.Start()
	testenv.Eventually(t, "the id is there after a restart", func() bool {
		again, err := registry.Installation(t.Context(), b.JS)
		return err == nil && again == ids[0]
	})
	if another, err := registry.Installation(t.Context(), other.JS); err != nil || another == ids[0] {
		t.Errorf("another bus: got %q, %v, want another id", another, err)
	}
}
