package admin_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/admin"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A backup holds the consumers of watches, whatever prefix their inboxes have.
func TestABackupIsRestoredWhateverTheInboxPrefix(t *testing.T) {
	t.Parallel()
	b := applied(t)
	opts := b.NC.Opts
	opts.InboxPrefix = "fl.answers"
	nc, err := opts.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), streams.BucketEndpoints)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := kv.WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop() //nolint:errcheck // its connection is closed next
	<-watch.Updates()
	dir, _ := backup(t, b)
	if err := restore(t, testenv.NewServer(t), dir); err != nil {
		t.Error(err)
	}
}

// What no restore would take is found while the backup is made, which then is none.
func TestABadBackupIsFoundWhileItIsMade(t *testing.T) {
	t.Parallel()
	b := applied(t)
	push := jetstream.ConsumerConfig{Durable: "push", DeliverSubject: "out.of.here", AckPolicy: jetstream.AckExplicitPolicy}
	if _, err := b.JS.CreatePushConsumer(t.Context(), streams.Events, push); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := admin.Backup(t.Context(), b.NC, dir, "test", slog.New(slog.DiscardHandler))
	if !errors.Is(err, admin.ErrArchive) || !strings.Contains(err.Error(), `push is durable and delivers to "out.of.here"`) {
		t.Errorf("got %v, want an ErrArchive that names the consumer", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "SHA256SUMS")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want a folder that does not look like a backup", err)
	}
}
