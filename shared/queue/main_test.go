package queue

import (
	"testing"

	"go.uber.org/goleak"

	"flightline/shared/testenv"
)

// A node of a cluster that is stopped while it still makes its streams leaves
// the goroutine of each store behind, or the one by which all stores of the process
// know the time (nats-server 2.15.2).
func TestMain(m *testing.M) {
	testenv.SetParallel()
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}
