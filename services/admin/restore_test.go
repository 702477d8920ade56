package admin_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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

// A restore that was killed leaves a store on which nothing starts, the doctor fails, and
// the next restore begins from nothing.
func TestAnInterruptedRestoreIsDoneAgain(t *testing.T) {
	t.Parallel()
	b := applied(t)
	kv, err := b.JS.KeyValue(t.Context(), streams.BucketEndpoints)
	if err == nil {
		_, err = kv.PutString(t.Context(), "kept", "{}")
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, m := backup(t, b)
	to := testenv.NewServer(t)
	nc, err := to.NC.Opts.Connect()
	if err != nil {
		t.Fatal(err)
	}
	// Without its connection it is as good as killed: it can remove nothing. All streams but the
	// last are there by then, so the server is not making one.
	log := slog.New(slog.NewTextHandler(&atLine{len(m.Streams) - 1, nc.Close}, nil))
	if _, err := admin.Restore(t.Context(), nc, dir, admin.RestoreConfig{Log: log}); err == nil || !strings.Contains(err.Error(), "the next restore removes them") {
		t.Fatalf("got %v, want what is left", err)
	}
	left := streamNames(t, to.JS)
	if !slices.Contains(left, streams.Restoring) || len(left) < 2 {
		t.Fatalf("got %q, want the mark and what was restored", left)
	}
	for _, fix := range []bool{false, true} {
		r := doctor(t, to, fix)
		if f := found(r, "restore"); f.State != admin.Fail || f.Hint == "" || !r.Failed() {
			t.Errorf("fix %v: got %+v, want a fail with a hint", fix, f)
		}
	}
	if err := streams.Apply(t.Context(), to.JS, streams.Config{}); !errors.Is(err, streams.ErrRestoring) {
		t.Errorf("got %v from a start, want ErrRestoring", err)
	}
	if names := streamNames(t, to.JS); !slices.Equal(names, left) {
		t.Errorf("got %q, want that nothing was made beside %q", names, left)
	}
	if err := restore(t, to, dir); err != nil {
		t.Fatal(err)
	}
	if names := streamNames(t, to.JS); slices.Contains(names, streams.Restoring) {
		t.Errorf("got %q after a whole restore, want no mark", names)
	}
	if err := streams.Apply(t.Context(), to.JS, streams.Config{}); err != nil {
		t.Error(err)
	}
	if kv, err = to.JS.KeyValue(t.Context(), streams.BucketEndpoints); err == nil {
		_, err = kv.Get(t.Context(), "kept")
	}
	if err != nil {
		t.Error(err)
	}
}

// atLine is where a log is written whose n-th line calls do.
type atLine struct {
	n  int
	do func()
}

func (a *atLine) Write(p []byte) (int, error) {
	if a.n--; a.n == 0 {
		a.do()
	}
	return len(p), nil
}

// The server may still be making a stream when all that is there has been removed.
func TestARestoreThatWasInterruptedLeavesItsMark(t *testing.T) {
	t.Parallel()
	dir, _ := backup(t, applied(t))
	to := testenv.NewServer(t)
	ctx, interrupt := context.WithCancel(t.Context())
	log := slog.New(slog.NewTextHandler(&atLine{1, interrupt}, nil))
	if _, err := admin.Restore(ctx, to.NC, dir, admin.RestoreConfig{Log: log}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
	if err := streams.CheckRestored(t.Context(), to.JS); !errors.Is(err, streams.ErrRestoring) {
		t.Errorf("got %v afterwards, want ErrRestoring", err)
	}
	if err := restore(t, to, dir); err != nil {
		t.Error(err)
	}
}

// A restore that fails leaves neither streams nor its mark.
func TestAFailedRestoreLeavesNothing(t *testing.T) {
	t.Parallel()
	dir, m := backup(t, applied(t))
	to := testenv.NewServer(t)
	_, err := admin.Restore(t.Context(), to.NC, dir, admin.RestoreConfig{Replicas: 3, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		t.Error("got no error for three copies on one server")
	}
	if names := streamNames(t, to.JS); len(names) > 0 {
		t.Errorf("got %q of %d streams, want none", names, len(m.Streams))
	}
}

func streamNames(t *testing.T, js jetstream.JetStream) []string {
	t.Helper()
	list := js.StreamNames(t.Context())
	var names []string
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}
