package bus_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

// asked are the requests for messages of stream by direct get, as the server receives them.
func asked(t *testing.T, nc *nats.Conn, stream string) *nats.Subscription {
	t.Helper()
	sub := testenv.Subscribe(t, nc, bus.DirectGet(stream))
	return sub
}

func direct(t *testing.T, sub *nats.Subscription) int {
	t.Helper()
	n, _, err := sub.Pending()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// newReader makes a stream with three messages, the second of which is deleted.
func newReader(t *testing.T, nc *nats.Conn, js jetstream.JetStream, replicas int) *bus.Client {
	t.Helper()
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "READ", Subjects: []string{"read.>"}, Replicas: replicas, AllowDirect: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	// A stored message may have a header Status, and a copy of what a direct get returned has those of the server.
	header := nats.Header{"Key": {"one", "two"}, "Status": {"404"}, jetstream.SubjectHeader: {"read.b.9"}, jetstream.SequenceHeader: {"9"}}
	for _, subject := range []string{"read.a.1", "read.b.1", "read.a.2"} {
		m := &nats.Msg{Subject: subject, Data: []byte("data of " + subject), Header: header}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteMsg(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	c, err := bus.NewClient(t.Context(), nc, bus.ClientConfig{ClockStream: "READ", DurablePrefix: "durable."})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var reads = map[string]struct {
	read func(ctx context.Context, c *bus.Client) (*bus.Message, error)
	seq  uint64 // 0 for ErrNoMessage
}{
	"last": {func(ctx context.Context, c *bus.Client) (*bus.Message, error) {
		return c.LeaderLast(ctx, "READ", "read.a.1")
	}, 1},
	"last of several": {func(ctx context.Context, c *bus.Client) (*bus.Message, error) {
		return c.LeaderLast(ctx, "READ", "read.*.*")
	}, 3},
	"last of none": {func(ctx context.Context, c *bus.Client) (*bus.Message, error) {
		return c.LeaderLast(ctx, "READ", "read.b.1")
	}, 0},
	"next": {func(ctx context.Context, c *bus.Client) (*bus.Message, error) {
		return c.LeaderNext(ctx, "READ", "read.>", 2)
	}, 3},
	"next of none": {func(ctx context.Context, c *bus.Client) (*bus.Message, error) {
		return c.LeaderNext(ctx, "READ", "read.b.*", 1)
	}, 0},
	"at":           {func(ctx context.Context, c *bus.Client) (*bus.Message, error) { return c.LeaderAt(ctx, "READ", 3) }, 3},
	"at a deleted": {func(ctx context.Context, c *bus.Client) (*bus.Message, error) { return c.LeaderAt(ctx, "READ", 2) }, 0},
	"at a later":   {func(ctx context.Context, c *bus.Client) (*bus.Message, error) { return c.LeaderAt(ctx, "READ", 9) }, 0},
}

func TestAServerThatIsAloneAnswersADirectGetAsALeaderWould(t *testing.T) {
	s := testenv.NewServer(t)
	c, leader := newReader(t, s.NC, s.JS, 1), bus.Bind(s.NC)
	sub := asked(t, s.NC, "READ")
	for name, tt := range reads {
		t.Run(name, func(t *testing.T) {
			before := direct(t, sub)
			got, err := tt.read(t.Context(), c)
			if n := direct(t, sub); n != before+1 {
				t.Errorf("got %d direct gets, want 1", n-before)
			}
			want, wantErr := tt.read(t.Context(), leader)
			if tt.seq == 0 {
				if !errors.Is(err, bus.ErrNoMessage) || !errors.Is(wantErr, bus.ErrNoMessage) {
					t.Errorf("got %v and of the leader %v, want ErrNoMessage", err, wantErr)
				}
				return
			}
			if err != nil || wantErr != nil {
				t.Fatal(err, wantErr)
			}
			if got.Seq != tt.seq || !got.Time.Equal(want.Time) {
				t.Errorf("got %d at %v, want %d at %v", got.Seq, got.Time, tt.seq, want.Time)
			}
			got.Time, want.Time = time.Time{}, time.Time{}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
	const first = "data of read.a.1"
	if m, err := c.DirectNext(t.Context(), "READ", "read.>", 1); err != nil || string(m.Data) != first {
		t.Errorf("next of any replica: got %v, %v, want %s", m, err, first)
	}
	if all, err := c.BatchGet(t.Context(), "READ", bus.Batch{From: 1, Filter: "read.>", Most: 9}); err != nil || len(all) != 2 || string(all[0].Data) != first {
		t.Errorf("a batch: got %v, %v, want two, the first %s", all, err, first)
	}
	if _, err := c.LeaderAt(t.Context(), "NOWHERE", 1); !errors.Is(err, bus.ErrMissing) {
		t.Errorf("a stream that does not exist: got %v, want ErrMissing", err)
	}
}

// A replica may lack the newest write.
func TestInAClusterOnlyTheLeaderIsAsked(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	cluster := testenv.NewCluster(t)
	c := newReader(t, cluster.NC, cluster.JS, testenv.Nodes)
	sub := asked(t, cluster.NC, "READ")
	for name, tt := range reads {
		got, err := tt.read(t.Context(), c)
		if tt.seq == 0 && !errors.Is(err, bus.ErrNoMessage) || tt.seq > 0 && (err != nil || got.Seq != tt.seq) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	if n := direct(t, sub); n != 0 {
		t.Errorf("got %d direct gets, want none", n)
	}
	if all, err := c.StreamStates(t.Context(), "read.>"); err != nil || len(all) != 1 || all["READ"].Messages != 2 {
		t.Errorf("states of the streams: got %+v, %v, want READ with 2 messages", all, err)
	}
}

// More than one answer has room for, and streams of another subject among them.
func TestStreamStatesAreThoseOfAllPages(t *testing.T) {
	s := testenv.NewServer(t)
	const queues = 300
	for i := range queues {
		for _, kind := range []string{"jobs", "logs"} {
			name := fmt.Sprintf("%s_%d", kind, i)
			if _, err := s.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{fmt.Sprintf("%s.%d.*", kind, i)}, Storage: jetstream.MemoryStorage}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.JS.Publish(t.Context(), "jobs.299.a", nil); err != nil {
		t.Fatal(err)
	}
	all, err := bus.Bind(s.NC).StreamStates(t.Context(), "jobs.*.>")
	if err != nil || len(all) != queues {
		t.Fatalf("got %d, %v, want %d", len(all), err, queues)
	}
	for i := range queues {
		name := fmt.Sprintf("jobs_%d", i)
		state, there := all[name]
		want := int64(0)
		if i == queues-1 {
			want = 1
		}
		if !there || state.Messages != want {
			t.Errorf("%s: got %+v, %v, want %d messages", name, state, there, want)
		}
	}
	if none, err := bus.Bind(s.NC).StreamStates(t.Context(), "other.>"); err != nil || len(none) != 0 {
		t.Errorf("streams of another subject: got %v, %v, want none", none, err)
	}
}

// The server lists a stream that is away as if it were empty.
func TestAStreamThatIsAwayHasNoState(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	cluster := testenv.NewCluster(t)
	for name, replicas := range map[string]int{"ONE": 1, "THREE": testenv.Nodes} {
		if _, err := cluster.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{"read." + name}, Replicas: replicas}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.JS.Publish(t.Context(), "read."+name, nil); err != nil {
			t.Fatal(err)
		}
	}
	cluster.StopNode(cluster.StreamLeader("ONE"))
	c := bus.Bind(cluster.NC)
	testenv.Eventually(t, "one stream has its message, the other no state", func() bool {
		all, err := c.StreamStates(t.Context(), "read.*")
		_, there := all["ONE"]
		return err == nil && len(all) == 1 && !there && all["THREE"].Messages == 1
	})
}

// A server that was left alone answers with what it has, which may lack writes.
func TestTheStateOfAStreamIsItsLeaders(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	cluster := testenv.NewCluster(t)
	c := newReader(t, cluster.NC, cluster.JS, testenv.Nodes)
	cluster.StopNode(0)
	cluster.StopNode(1)
	testenv.Eventually(t, "the server that is left answers and names no leader", func() bool {
		s, err := cluster.JS.Stream(t.Context(), "READ")
		return err == nil && bus.Leaderless(s.CachedInfo())
	})
	within, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if state, err := c.StreamState(within, "READ"); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("without a leader: got %+v, %v, want ErrUnavailable", state, err)
	}
	cluster.StartNode(0)
	cluster.StartNode(1)
	if state, err := c.StreamState(t.Context(), "READ"); err != nil || state.Messages != 2 {
		t.Errorf("once there is a leader: got %+v, %v, want 2 messages", state, err)
	}
}

// A server that led the stream before its start answers beside the leader.
func TestOnlyTheAnswerOfALeaderCounts(t *testing.T) {
	replicas := []*jetstream.PeerInfo{{Name: "b"}, {Name: "c"}}
	for name, tt := range map[string]struct {
		said *jetstream.ClusterInfo
		want bool
	}{
		"one server":              {nil, true},
		"one copy in a cluster":   {&jetstream.ClusterInfo{Name: "c", Leader: "a"}, true},
		"the leader":              {&jetstream.ClusterInfo{Name: "c", Leader: "a", Replicas: replicas}, true},
		"a follower":              {&jetstream.ClusterInfo{Name: "c", Leader: "b", Replicas: replicas}, false},
		"a server without leader": {&jetstream.ClusterInfo{Name: "c", Replicas: replicas}, false},
	} {
		if got := bus.IsFromLeader(tt.said); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// BenchmarkLeaderLast reads messages of 256 bytes and of 200 KB as a process reads them
// from a server that is alone, and as it asks a leader of several.
func BenchmarkLeaderLast(b *testing.B) {
	s := testenv.NewServer(b)
	if _, err := s.JS.CreateStream(b.Context(), jetstream.StreamConfig{Name: "READ", Subjects: []string{"read.>"}, AllowDirect: true}); err != nil {
		b.Fatal(err)
	}
	alone, err := bus.NewClient(b.Context(), s.NC, bus.ClientConfig{ClockStream: "READ", DurablePrefix: "durable."})
	if err != nil {
		b.Fatal(err)
	}
	for subject, size := range map[string]int{"read.256": 256, "read.200000": 200_000} {
		if _, err := s.JS.Publish(b.Context(), subject, make([]byte, size)); err != nil {
			b.Fatal(err)
		}
		for name, c := range map[string]*bus.Client{"alone": alone, "leader": bus.Bind(s.NC)} {
			b.Run(subject+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.LeaderLast(b.Context(), "READ", subject); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
