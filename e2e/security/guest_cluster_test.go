package security

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/streams"
)

// In a cluster a worker's request may enter at one node, be answered by another,
// and be stored by a third: pull, delivery and acknowledgement pass its account
// at each of them.
func TestAWorkersAccountReachesThroughACluster(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	setup, routes := filepath.Join(s.Dir, "setup"), testenv.FreePorts(t, 3)
	s.OK("nats-config", "--dir", setup, "--cluster", strings.Join(routes, ","), "--endpoint", "mine")
	all, password := startNodes(s, setup, routes)
	within, cancel := context.WithTimeout(t.Context(), program.Soon)
	defer cancel()
	if err := all[0].WaitForLeader(within); err != nil {
		t.Fatal(err)
	}
	connect := func(at int, user, password string) *nats.Conn {
		return testenv.Connect(t, bus.Config{URL: all[at].URL(), User: user, Password: password, InboxPrefix: "_INBOX_" + user})
	}
	js, err := jetstream.New(connect(0, "admin", password))
	if err != nil {
		t.Fatal(err)
	}
	s.Eventually("a queue with three copies is made", func() bool {
		return streams.ApplyEndpoint(within, js, streams.Config{Replicas: 3}, endpointOf(t, "mine")) == nil
	})
	workers, err := os.ReadFile(filepath.Join(setup, "worker", "password"))
	if err != nil {
		t.Fatal(err)
	}
	for at := range all {
		nc := connect(at, "worker", string(workers))
		inbox := nc.NewInbox()
		sub, err := nc.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		s.Eventually("a job is stored, once", func() bool {
			_, err := js.Publish(within, streams.JobSubject("mine", "n", "job"), []byte("{}"))
			return err == nil || strings.Contains(err.Error(), "maximum messages per subject") // it was stored, and its answer lost
		})
		var m *nats.Msg
		s.Eventually("a pull is answered", func() bool {
			if err := nc.PublishRequest(bus.PullNext(streams.Jobs("mine"), "normal"), inbox, []byte(`{"batch":1,"expires":2000000000}`)); err != nil {
				t.Fatal(err)
			}
			m, err = sub.NextMsg(3 * time.Second) // the pull is over then
			return err == nil && string(m.Data) == "{}"
		})
		s.Eventually("the job is acknowledged", func() bool {
			_, err := nc.Request(m.Reply, []byte("+ACK"), time.Second)
			return err == nil
		})
		if err := nc.LastError(); err != nil {
			t.Errorf("node %d: %v", at, err)
		}
	}
	q, err := js.Stream(within, streams.Jobs("mine"))
	if err != nil {
		t.Fatal(err)
	}
	s.Eventually("what was acknowledged is gone", func() bool {
		info, err := q.Info(within)
		return err == nil && info.State.Msgs == 0
	})
}
