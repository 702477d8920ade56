package registry

import (
	"context"
	"errors"
	"testing"
	"unsafe"

	"flightline/shared/endpoint"
	"flightline/shared/testenv"
)

// A read of the bucket may outlast the request that began it. The memory of that request,
// where the key is, belongs to another one then. All who ask for the key later get its value.
func TestAReadThatOutlastsItsRequestKeepsItsKey(t *testing.T) {
	t.Parallel()
	b, r := newRegistry(t)
	if _, err := r.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "first"}); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	memory := []byte("first")
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := r.Endpoints.Get(left, unsafe.String(&memory[0], len(memory))); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v for a request that is over, want context.Canceled", err)
	}
	over := r.Endpoints.cache.reads.DoChan("first", func() (any, error) { return nil, errors.New("the read is over") })
	copy(memory, "other")
	b.Start()
	<-over
	copy(memory, "first")
	testenv.Eventually(t, "the endpoint is found", func() bool {
		within, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		got, err := r.Endpoints.Get(within, "first")
		return err == nil && got.ID == "first"
	})
}
