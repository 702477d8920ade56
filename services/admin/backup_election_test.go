package admin_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/admin"
	"flightline/shared/bus"
	"flightline/shared/testenv"
	"flightline/streams"
)

// Servers that die do not end a backup: the copy of a stream that they led begins again.
func TestABackupOutlivesServersThatDie(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a question without an answer takes some seconds, as elections do")
	}
	c := testenv.NewCluster(t)
	if err := streams.Apply(t.Context(), c.JS, streams.Config{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	names, err := bus.Bind(c.NC).StreamNames(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names = streams.BackupOrder(names)
	first, next := names[0], names[1]
	const answered = 3 * time.Second
	again := false
	log := slog.New(interleaved{slog.DiscardHandler, map[string]func(){
		copied + first: func() {
			c.StopNode(0)
			c.StopNode(1)
			testenv.Eventually(t, "the server that is left leads the next stream no more", func() bool { // till then it answers
				s, err := c.JS.Stream(t.Context(), next)
				return err == nil && s.CachedInfo().Cluster.Leader == ""
			})
		},
		"the copy was broken off, beginning again " + next: sync.OnceFunc(func() {
			again = true
			c.StartNode(0)
			c.StartNode(1)
			for _, name := range names { // a question that meets an election waits once more
				c.StreamLeader(name)
			}
		}),
	}})
	dir := filepath.Join(t.TempDir(), "backup")
	if _, err := admin.BackupWithin(t.Context(), c.NC, dir, "test", answered, log); err != nil || !again {
		t.Fatalf("got %v, want a backup whose copies began again", err)
	}
}

// A backup that begins in an election waits for the end of that.
func TestABackupBeginsInAnElection(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a question without an answer takes some seconds, as elections do")
	}
	c := testenv.NewCluster(t)
	if err := streams.Apply(t.Context(), c.JS, streams.Config{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	endpoints := streams.Bucket(streams.BucketEndpoints)
	c.StopNode(0)
	c.StopNode(1)
	testenv.Eventually(t, "the server that is left leads nothing", func() bool {
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, unknown := bus.Bind(c.NC).StreamNames(within)
		s, err := c.JS.Stream(t.Context(), endpoints)
		return unknown != nil && err == nil && bus.Leaderless(s.CachedInfo())
	})
	asked, err := c.NC.SubscribeSync(bus.StreamInfo(endpoints))
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan error, 1)
	go func() {
		_, err := admin.Backup(t.Context(), c.NC, filepath.Join(t.TempDir(), "backup"), "test", slog.New(slog.DiscardHandler))
		began <- err
	}()
	for range 2 { // the second time because nobody answered
		if _, err := asked.NextMsg(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	c.StartNode(0)
	c.StartNode(1)
	if err := <-began; err != nil {
		t.Error(err)
	}
}

// A consumer without replicas, as that of a watch, is on one server. While that is away the
// server cannot copy the stream with its consumers.
func TestABackupDoesNotNeedTheServerOfAConsumer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the server waits some seconds for the consumer, twice")
	}
	c := testenv.NewCluster(t)
	if err := streams.Apply(t.Context(), c.JS, streams.Config{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	watched := streams.Bucket(streams.BucketEndpoints)
	consumer, err := c.JS.CreateConsumer(t.Context(), watched, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range testenv.Nodes {
		if c.NodeName(i) == consumer.CachedInfo().Cluster.Leader {
			c.StopNode(i)
		}
	}
	names, err := bus.Bind(c.NC).StreamNames(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		c.StreamLeader(name)
	}
	m, err := admin.Backup(t.Context(), c.NC, filepath.Join(t.TempDir(), "backup"), "test", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(m.Streams, func(c admin.Copy) bool { return c.Name == watched }) {
		t.Errorf("got %+v, want a copy of %s", m.Streams, watched)
	}
}
