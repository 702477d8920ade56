package streams_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A server that starts without its last messages, as after a power loss, gives
// their sequences again. The new message is delivered, also by a consumer that is
// ahead of its stream, and the server takes an ack of the lost message for one of
// the new. shared/queue therefore binds acks to the start of the server
// (shared/queue/claim.go).
func TestFactTheAckOfALostMessageRemovesTheOneThatHasItsSequence(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]string{"the consumer is set back too": ".", "the consumer is ahead": "msgs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			b.e.Lease = 2 * time.Second // for which a consumer that is ahead may take the new message for the lost one
			if err := streams.ApplyEndpoint(t.Context(), b.JS, streams.Config{}, b.e); err != nil {
				t.Fatal(err)
			}
			found, err := filepath.Glob(filepath.Join(b.Dir(), "jetstream", "*", "streams", streams.Jobs(b.e.ID), lost))
			if err != nil || len(found) != 1 {
				t.Fatalf("got %v, %v, want the folder of the queue", found, err)
			}
			before := t.TempDir()
			if err := os.CopyFS(before, os.DirFS(found[0])); err != nil {
				t.Fatal(err)
			}
			seq := publish(t.Context(), t, b.JS, message(streams.JobSubject(b.e.ID, job.Normal, "lost"), ""))
			old := fetch(t, b.JS, b.e.ID)
			b.Stop()
			if err := errors.Join(os.RemoveAll(found[0]), os.CopyFS(found[0], os.DirFS(before))); err != nil {
				t.Fatal(err)
			}
			b.Start()
			testenv.Eventually(t, "the queue is back", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second) // an answer of the old server never comes
				defer cancel()
				_, err := b.JS.Stream(ctx, streams.Jobs(b.e.ID))
				return err == nil
			})
			subject := streams.JobSubject(b.e.ID, job.Normal, "new")
			if again := publish(t.Context(), t, b.JS, message(subject, "")); again != seq {
				t.Fatalf("got sequence %d for the new message, want %d again", again, seq)
			}
			if m := fetch(t, b.JS, b.e.ID); m.Subject() != subject {
				t.Fatalf("got %s delivered, want the new one", m.Subject())
			}
			if err := old.Ack(); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, "the new message is gone", gone(t, stream(t, b.JS, streams.Jobs(b.e.ID)), subject))
		})
	}
}
