package security

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/logs"
	"flightline/shared/testenv/program"
	"flightline/streams"
)

// The autoscaler and a worker keep lines, the API reads them as they come, and a worker
// writes none for another endpoint and reads none.
func TestLinesAreKeptByThoseWhoMay(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, "--endpoint", "mine")
	g.T = t
	js, err := jetstream.New(g.connect(streams.RoleAdmin))
	if err != nil {
		t.Fatal(err)
	}
	if err := streams.Apply(t.Context(), js, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	reader := bus.Bind(g.connect(streams.RoleAPI))
	v, err := logs.NewWatch(t.Context(), reader, logs.Watching{Endpoint: endpointOf(t, "mine")})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for _, role := range []streams.Role{streams.RoleAutoscaler, streams.RoleWorker} {
		nc := bus.Bind(g.connect(role))
		r := logs.NewRecorder(nc, logs.Source{Endpoint: "mine", Worker: string(role)}, nil)
		_, _ = r.Stream(logs.Stdout).Write([]byte("by " + string(role) + "\n"))
		r.End()
		if err := r.Run(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), program.Soon)
		some, err := v.Next(ctx)
		cancel()
		if err != nil || len(some) != 1 || some[0].Worker != string(role) {
			t.Fatalf("%s: got %v, %v", role, some, err)
		}
	}
	if _, err := logs.LastTime(t.Context(), bus.Bind(g.connect(streams.RoleAutoscaler)), logs.Source{Endpoint: "mine", Worker: "worker"}); err != nil {
		t.Errorf("the autoscaler does not know where to go on: %v", err)
	}
	worker := g.connect(streams.RoleWorker)
	denied := make(chan error, 2)
	worker.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })
	for _, subject := range []string{streams.LogSubject(0, "other", "w"), bus.DirectGet(streams.Logs(0))} {
		if err := worker.PublishRequest(subject, worker.NewInbox(), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-denied:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: got %v, want ErrPermissionViolation", subject, err)
			}
		case <-time.After(program.Soon):
			t.Fatalf("%s: not refused", subject)
		}
	}
}
