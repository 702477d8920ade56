package admin_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/admin"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// interleaved is a log that acts after a line, by its message and the stream that it names.
type interleaved struct {
	slog.Handler

	after map[string]func()
}

// copied is the line once the backup has copied a stream.
const copied = "stream copied "

func (interleaved) Enabled(context.Context, slog.Level) bool { return true }

func (i interleaved) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if act := i.after[r.Message+" "+a.Value.String()]; a.Key == "stream" && act != nil {
			act()
		}
		return true
	})
	return nil
}

// store writes an empty message.
func store(t *testing.T, b *testenv.Server, subject string) {
	t.Helper()
	if _, err := b.JS.Publish(t.Context(), subject, nil); err != nil {
		t.Fatal(err)
	}
}

// has reports whether a stream has a message on the subject.
func has(t *testing.T, b *testenv.Server, stream, subject string) bool {
	t.Helper()
	s, err := b.JS.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.GetLastMsgForSubject(t.Context(), subject)
	return err == nil
}

// A webhook that goes back from the dead letters to the queue is in either. A webhook that is
// delivered, and loses its copies of payloads, is in the log too: else a restore would give it
// up.
func TestABackupHasWebhooksThatMoveMeanwhile(t *testing.T) {
	t.Parallel()
	b := applied(t)
	replayed, delivered := job.ID("replayed"), job.ID("delivered")
	store(t, b, streams.UndeliveredSubject("ep", replayed, 1))
	store(t, b, streams.WebhookSubject("ep", delivered, 1))
	dir := filepath.Join(t.TempDir(), "backup")
	log := slog.New(interleaved{slog.DiscardHandler, map[string]func(){
		copied + streams.Webhooks: func() {
			store(t, b, streams.WebhookSubject("ep", replayed, 1))
			purge(t, b, streams.Undelivered, streams.UndeliveredSubject("ep", replayed, 1))
		},
		copied + streams.Undelivered: func() {
			store(t, b, streams.DeliverySubject("ep", delivered, 1))
			purge(t, b, streams.Webhooks, streams.WebhookSubject("ep", delivered, 1))
		},
	}})
	if _, err := admin.Backup(t.Context(), b.NC, dir, "test", log); err != nil {
		t.Fatal(err)
	}
	other := testenv.NewServer(t)
	if err := restore(t, other, dir); err != nil {
		t.Fatal(err)
	}
	if !has(t, other, streams.Webhooks, streams.WebhookSubject("ep", replayed, 1)) {
		t.Error("the webhook that was replayed meanwhile is neither in the queue nor among the dead letters")
	}
	if !has(t, other, streams.Deliveries, streams.DeliverySubject("ep", delivered, 1)) {
		t.Error("the log lacks the delivery of a webhook whose payloads went before they were copied")
	}
}

// A destination that is paused after its bucket was copied is paused in the backup, if a webhook
// was put aside for it: without the pause nothing shows that it waits to be resumed.
func TestABackupHasThePauseForWhichAWebhookWasPutAside(t *testing.T) {
	t.Parallel()
	b := applied(t)
	paused := streams.KeySubject(streams.BucketDestinations, "ep.x")
	aside := streams.UndeliveredSubject("ep", "aside", 1)
	dir := filepath.Join(t.TempDir(), "backup")
	log := slog.New(interleaved{slog.DiscardHandler, map[string]func(){
		copied + streams.Bucket(streams.BucketDestinations): func() {
			store(t, b, paused)
			store(t, b, aside)
		},
	}})
	if _, err := admin.Backup(t.Context(), b.NC, dir, "test", log); err != nil {
		t.Fatal(err)
	}
	other := testenv.NewServer(t)
	if err := restore(t, other, dir); err != nil {
		t.Fatal(err)
	}
	if !has(t, other, streams.Undelivered, aside) || !has(t, other, streams.Bucket(streams.BucketDestinations), paused) {
		t.Error("the webhook that was put aside, or the pause of its destination, is missing")
	}
}

// purge removes the message on the subject.
func purge(t *testing.T, b *testenv.Server, stream, subject string) {
	t.Helper()
	s, err := b.JS.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject(subject)); err != nil {
		t.Fatal(err)
	}
}
