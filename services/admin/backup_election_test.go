package admin_test

import (
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"flightline/services/admin"
	"flightline/shared/bus"
	"flightline/shared/testenv"
	"flightline/streams"
)

// Servers that die do not end a backup: the copy of a stream that they led begins again.
func TestABackupOutlivesServersThatDie(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a question without an answer takes 30 s")
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
		"the copy was broken off, beginning again " + next: sync.OnceFunc(func() { again = true; c.StartNode(0); c.StartNode(1) }),
	}})
	dir := filepath.Join(t.TempDir(), "backup")
	if _, err := admin.Backup(t.Context(), c.NC, dir, "test", log); err != nil || !again {
		t.Fatalf("got %v, want a backup whose copies began again", err)
	}
}
