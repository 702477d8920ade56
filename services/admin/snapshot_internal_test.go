package admin

import (
	"errors"
	"testing"
	"time"

	"flightline/shared/testenv"
)

// The answer to the last chunk may take half an hour, but not if it can no
// longer come.
func TestTheEndOfACopyWaitsForNoLostAnswer(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	nc := b.Connect(t)
	asked, err := nc.SubscribeSync("somebody.silent")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- endCopy(t.Context(), nc, "somebody.silent") }()
	if _, err := asked.NextMsg(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	select {
	case err := <-ended:
		if !errors.Is(err, errStalled) {
			t.Errorf("got %v, want errStalled", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits on")
	}
}
