package streams_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/testenv"
	"flightline/streams"
)

// A key whose value has no ttl needs its delete marker for ever. A purge up to
// a sequence, with all living values written again above it, looks like a way out:
// it takes markers and values, and a SIGKILL brings none back. But a server that
// finds no index.db builds the stream from its blocks, where the marker has a mark
// of its removal and the value that gave way to it has none: a revoked token lets in
// again.
func TestAPurgeUpToASequenceBringsBackWhatGaveWayOnceTheIndexIsLost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	for name, lose := range map[string]bool{"killed": false, "killed, and its index lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, js := newKillable(t)
			tokens, s := purgedTokens(t, js)
			server.restart(t, func(dir string) error {
				if !lose {
					return nil
				}
				return os.Remove(indexOf(t, dir))
			})
			m, err := s.GetLastMsgForSubject(t.Context(), tokens+"ep.revoked")
			switch {
			case !lose && !errors.Is(err, jetstream.ErrMsgNotFound):
				t.Errorf("got %v, %v; want nothing", m, err)
			case lose && (err != nil || string(m.Data) != "changed"):
				t.Errorf("got %v, %v; want the token back: if not, the server has learnt better", m, err)
			}
		})
	}
}

// With a ttl on each message, and none that expires before what it replaced, what
// comes back has expired as well: it shows its ttl, and the server removes it. The
// server has written no index by then, so it builds the stream from its blocks.
func TestWhatComesBackOfAKeyWithATTLHasExpired(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	const ttl = 2 * time.Second
	server, js := newKillable(t)
	if err := streams.Apply(t.Context(), js, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	key := "$KV." + streams.BucketTokens + ".ep."
	publish(t.Context(), t, js, message(key+"lives", "made"))
	for _, text := range []string{"made", "changed", ""} {
		publish(t.Context(), t, js, message(key+"revoked", text, jetstream.MsgTTLHeader, ttl.String()))
	}
	publish(t.Context(), t, js, message(key+"later", "made"))
	s, err := js.Stream(t.Context(), streams.Bucket(streams.BucketTokens))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the marker expires", gone(t, s, key+"revoked"))
	server.restart(t, nil)
	m, err := s.GetLastMsgForSubject(t.Context(), key+"revoked")
	if err == nil && (m.Header.Get(jetstream.MsgTTLHeader) != ttl.String() || time.Since(m.Time) < ttl) {
		t.Errorf("got %+v, want its ttl, and that it is over", m)
	}
	testenv.Eventually(t, "it expires again", gone(t, s, key+"revoked"))
	for _, id := range []string{"lives", "later"} {
		if _, err := s.GetLastMsgForSubject(t.Context(), key+id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// purgedTokens makes a token, changes and revokes it, makes another, and purges all
// that came before that one. It returns the subject of tokens up to the key.
func purgedTokens(t *testing.T, js jetstream.JetStream) (prefix string, s jetstream.Stream) {
	t.Helper()
	if err := streams.Apply(t.Context(), js, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), streams.BucketTokens)
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	for _, write := range []func() error{
		func() error { _, err := kv.Put(t.Context(), "ep.revoked", []byte("made")); return err },
		func() error { _, err := kv.Put(t.Context(), "ep.revoked", []byte("changed")); return err },
		func() error { return kv.Purge(t.Context(), "ep.revoked") },
		func() (err error) { last, err = kv.Put(t.Context(), "ep.lives", []byte("made")); return err },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = js.Stream(t.Context(), streams.Bucket(streams.BucketTokens)); err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(last)); err != nil {
		t.Fatal(err)
	}
	return "$KV." + streams.BucketTokens + ".", s
}

// indexOf is the index of the tokens' stream in a server's folder.
func indexOf(t *testing.T, dir string) string {
	t.Helper()
	found := ""
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) == "index.db" && filepath.Base(filepath.Dir(filepath.Dir(path))) == streams.Bucket(streams.BucketTokens) {
			found = path
		}
		return err
	})
	if err != nil || found == "" {
		t.Fatalf("no index of the tokens: %v", err)
	}
	return found
}
