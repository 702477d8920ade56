package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/admin"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

func applied(t *testing.T) *testenv.Server {
	t.Helper()
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	e, err := endpoint.Endpoint{ID: "ep"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if err := streams.ApplyEndpoint(t.Context(), b.JS, streams.Config{}, e); err != nil {
		t.Fatal(err)
	}
	return b
}

func backup(t *testing.T, b *testenv.Server) (string, admin.Manifest) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "backup")
	m, err := admin.Backup(t.Context(), b.NC, dir, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func restore(t *testing.T, b *testenv.Server, dir string) error {
	t.Helper()
	_, err := admin.Restore(t.Context(), b.NC, dir, admin.RestoreConfig{Log: slog.New(slog.DiscardHandler)})
	return err
}

// Values that are written again and again, so that each moves through many
// blocks of the store while they are copied one by one, are all there
// afterwards, none older than when the backup began.
func TestABackupKeepsValuesThatMoveMeanwhile(t *testing.T) {
	t.Parallel()
	b := applied(t)
	kv, err := b.JS.KeyValue(t.Context(), streams.BucketPods)
	if err != nil {
		t.Fatal(err)
	}
	const keys = 2000
	filler := strings.Repeat("x", 4<<10)
	var kept [keys]atomic.Int64 // the last round of each that was acknowledged
	write := func(ctx context.Context, key, round int) error {
		_, err := kv.PutString(ctx, "key-"+strconv.Itoa(key), strconv.Itoa(round)+" "+filler)
		if err == nil {
			kept[key].Store(int64(round))
		}
		return err
	}
	for key := range keys {
		if err := write(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for writer := range 2 {
		writers.Go(func() {
			for round := 2; ctx.Err() == nil; round++ {
				for key := writer; key < keys && ctx.Err() == nil; key += 2 {
					if err := write(ctx, key, round); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			}
		})
	}
	var before [keys]int
	for key := range keys {
		before[key] = int(kept[key].Load())
	}
	dir, m := backup(t, b)
	stop()
	writers.Wait()
	for _, c := range m.Streams {
		if c.Name == streams.Bucket(streams.BucketPods) {
			t.Logf("%d messages, %d bytes, %d written later", c.Messages, c.Bytes, c.Later)
		}
	}
	other := testenv.NewServer(t)
	if err := restore(t, other, dir); err != nil {
		t.Fatal(err)
	}
	if kv, err = other.JS.KeyValue(t.Context(), streams.BucketPods); err != nil {
		t.Fatal(err)
	}
	for key := range keys {
		v, err := kv.Get(t.Context(), "key-"+strconv.Itoa(key))
		if err != nil {
			t.Errorf("key-%d: %v", key, err)
			continue
		}
		round, _, _ := strings.Cut(string(v.Value()), " ")
		if got, err := strconv.Atoi(round); err != nil || got < before[key] {
			t.Errorf("key-%d: got round %q, want %d or later", key, round, before[key])
		}
	}
}

// A queue that is worked off while it is copied hands out all that was in it,
// and what comes after the restore too, whatever its consumers believed.
func TestARestoredQueueHandsEverythingOut(t *testing.T) {
	t.Parallel()
	b := applied(t)
	publish := func(b *testenv.Server, id string) {
		if _, err := b.JS.Publish(t.Context(), streams.JobSubject("ep", job.Normal, job.ID(id)), nil, jetstream.WithMsgTTL(time.Hour)); err != nil {
			t.Error(err)
		}
	}
	const before = 500
	for i := range before {
		publish(b, fmt.Sprint("before-", i))
	}
	// Half of them are handed out and not acknowledged, a tenth is done.
	done := map[string]bool{}
	for i, m := range take(t, b, before/2) {
		if i < before/10 {
			done[m.Subject()] = true
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir, _ := backup(t, b)
	other := testenv.NewServer(t)
	if err := restore(t, other, dir); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		publish(other, fmt.Sprint("after-", i))
	}
	want := before - len(done) + 20
	seen := map[string]bool{}
	for _, m := range take(t, other, want) {
		if done[m.Subject()] {
			t.Errorf("%s was done and is handed out again", m.Subject())
		}
		if m.Headers().Get(jetstream.MsgTTLHeader) == "" {
			t.Errorf("%s has lost its ttl", m.Subject())
		}
		seen[m.Subject()] = true
	}
	if len(seen) != want {
		t.Errorf("got %d messages, want %d", len(seen), want)
	}
}

func take(t *testing.T, b *testenv.Server, n int) []jetstream.Msg {
	t.Helper()
	c, err := b.JS.Consumer(t.Context(), streams.Jobs("ep"), streams.Consumer(job.Normal))
	if err != nil {
		t.Fatal(err)
	}
	var got []jetstream.Msg
	for len(got) < n {
		batch, err := c.Fetch(n-len(got), jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		count := len(got)
		for m := range batch.Messages() {
			got = append(got, m)
		}
		if len(got) == count {
			t.Fatalf("got %d messages, want %d", count, n)
		}
	}
	return got
}

// A backup that is not whole, not as it was, or of a newer program is refused,
// and nothing of it is written.
func TestABadBackupIsRefused(t *testing.T) {
	good, _ := backup(t, applied(t))
	data := streams.Events + ".snapshot"
	tests := map[string]struct {
		spoil func(dir string) error
		want  error
	}{
		"interrupted":       {func(dir string) error { return os.Remove(filepath.Join(dir, "SHA256SUMS")) }, admin.ErrArchive},
		"cut off":           {func(dir string) error { return os.Truncate(filepath.Join(dir, data), 100) }, admin.ErrArchive},
		"a file is missing": {func(dir string) error { return os.Remove(filepath.Join(dir, data)) }, admin.ErrArchive},
		"a byte changed":    {func(dir string) error { return flip(filepath.Join(dir, data)) }, admin.ErrArchive},
		"the manifest changed": {func(dir string) error {
			return flip(filepath.Join(dir, "manifest.json"))
		}, admin.ErrArchive},
		"the sums are cut off": {func(dir string) error { return os.Truncate(filepath.Join(dir, "SHA256SUMS"), 0) }, admin.ErrArchive},
		"no backup at all":     {os.RemoveAll, admin.ErrArchive},
	}
	other := testenv.NewServer(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			if err := test.spoil(dir); err != nil {
				t.Fatal(err)
			}
			if err := restore(t, other, dir); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if info, err := other.JS.AccountInfo(t.Context()); err != nil || info.Streams != 0 {
				t.Errorf("got %+v, %v, want no stream", info, err)
			}
		})
	}
	if err := restore(t, other, good); err != nil {
		t.Errorf("the good one: %v", err)
	}
	if err := restore(t, other, good); !errors.Is(err, admin.ErrNotEmpty) {
		t.Errorf("once more: got %v, want ErrNotEmpty", err)
	}
	// What was restored is what a start finds in order.
	if err := streams.Apply(t.Context(), other.JS, streams.Config{}); err != nil {
		t.Error(err)
	}
}

func flip(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[len(data)/2] ^= 1
	return os.WriteFile(path, data, 0o600)
}

func TestABackupNeedsAFlightlineAndAnEmptyFolder(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	if _, err := admin.Backup(t.Context(), testenv.NewServer(t).NC, dir, "", log); !errors.Is(err, admin.ErrNothing) {
		t.Errorf("got %v, want ErrNothing", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Backup(t.Context(), applied(t).NC, dir, "", log); !errors.Is(err, admin.ErrNotEmpty) {
		t.Errorf("got %v, want ErrNotEmpty", err)
	}
}

// Schedules go on firing after a restore: deadlines of running jobs hold.
func TestARestoredScheduleFires(t *testing.T) {
	t.Parallel()
	b := applied(t)
	m := nats.NewMsg(streams.RecordSubject(0, "ep", "job", 1))
	m.Header.Set(jetstream.ScheduleHeader, "@every 1s")
	m.Header.Set(jetstream.ScheduleTargetHeader, streams.DueSubject(0, "ep", "job", 1))
	m.Header.Set(jetstream.ScheduleTTLHeader, streams.DueTTL())
	if _, err := b.JS.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	dir, _ := backup(t, b)
	other := testenv.NewServer(t)
	if err := restore(t, other, dir); err != nil {
		t.Fatal(err)
	}
	c, err := other.JS.Consumer(t.Context(), streams.Records(0), streams.DueConsumer)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // one may have been there already
		due, err := c.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := due.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
