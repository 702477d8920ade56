package streams_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/testenv"
	"flightline/streams"
)

// mark writes a schema as another program would; "" takes it away.
func mark(t *testing.T, js jetstream.JetStream, version string) {
	t.Helper()
	c := stream(t, js, streams.Bucket(streams.BucketEndpoints)).CachedInfo().Config
	c.Metadata = map[string]string{"flightline.schema": version}
	if version == "" {
		c.Metadata = nil
	}
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func schemaOf(t *testing.T, js jetstream.JetStream) (version int, found bool) {
	t.Helper()
	version, found, err := streams.SchemaOf(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	return version, found
}

// A bus that is made, or was made before versions were kept, has ours
// afterwards, and keeps what is in it.
func TestApplyLeadsToThisSchema(t *testing.T) {
	b := testenv.NewServer(t)
	if version, found := schemaOf(t, b.JS); found {
		t.Fatalf("got schema %d on an empty server, want none", version)
	}
	for _, before := range []string{"nothing", "", "0", strconv.Itoa(streams.Schema)} {
		if before != "nothing" {
			mark(t, b.JS, before)
		}
		if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
			t.Fatal(err)
		}
		if version, found := schemaOf(t, b.JS); version != streams.Schema || !found {
			t.Errorf("got schema %d, %v after %q, want %d", version, found, before, streams.Schema)
		}
		kv, err := b.JS.KeyValue(t.Context(), streams.BucketEndpoints)
		if err != nil {
			t.Fatal(err)
		}
		if before == "nothing" {
			if _, err := kv.PutString(t.Context(), "kept", "value"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := kv.Get(t.Context(), "kept"); err != nil {
			t.Errorf("after %q: %v", before, err)
		}
	}
}

// An older program does not start on what a newer one wrote, says both
// versions, and has changed nothing.
func TestApplyRefusesANewerSchema(t *testing.T) {
	b := start(t)
	newer := streams.Schema + 3
	mark(t, b.JS, strconv.Itoa(newer))
	if err := b.JS.DeleteStream(t.Context(), streams.Undelivered); err != nil {
		t.Fatal(err)
	}
	err := streams.Apply(t.Context(), b.JS, streams.Config{})
	if !errors.Is(err, streams.ErrSchema) || !strings.Contains(err.Error(), strconv.Itoa(newer)) || !strings.Contains(err.Error(), "knows "+strconv.Itoa(streams.Schema)) {
		t.Errorf("got %v, want an ErrSchema that names %d and %d", err, newer, streams.Schema)
	}
	if _, err := b.JS.Stream(t.Context(), streams.Undelivered); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("got %v, want nothing made", err)
	}
	if version, _ := schemaOf(t, b.JS); version != newer {
		t.Errorf("got schema %d, want still %d", version, newer)
	}
}

// Schema 2 on what 1 left: destinations get a ttl, those that are there stay.
func TestApplyLeadsFromSchema1(t *testing.T) {
	b := start(t)
	if err := b.JS.DeleteStream(t.Context(), streams.Bucket(streams.BucketDestinations)); err != nil {
		t.Fatal(err)
	}
	old := jetstream.KeyValueConfig{Bucket: streams.BucketDestinations, Storage: jetstream.FileStorage, Replicas: 1}
	kv, err := b.JS.CreateKeyValue(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "ep.a", "{}"); err != nil {
		t.Fatal(err)
	}
	mark(t, b.JS, "1")
	for range 2 {
		if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	if version, _ := schemaOf(t, b.JS); version != streams.Schema || version < 2 {
		t.Errorf("got schema %d, want %d", version, streams.Schema)
	}
	if c := stream(t, b.JS, streams.Bucket(streams.BucketDestinations)).CachedInfo(); !c.Config.AllowMsgTTL || c.State.Msgs != 1 {
		t.Errorf("got ttls %v and %d messages, want ttls and one", c.Config.AllowMsgTTL, c.State.Msgs)
	}
}

// Schema 3 on what 2 left: the pods that no driver runs get a bucket of their
// own.
func TestApplyLeadsFromSchema2(t *testing.T) {
	b := start(t)
	if err := b.JS.DeleteKeyValue(t.Context(), streams.BucketWorkerPods); err != nil {
		t.Fatal(err)
	}
	mark(t, b.JS, "2")
	pods := bucketOf(t, b.JS, streams.BucketPods)
	for id, value := range map[string]string{
		"own": `{"endpoint":"ep"}`, "driven": `{"endpoint":"ep","driver":"process"}`, "lone": `{}`, "unreadable": "{",
	} {
		if _, err := pods.PutString(t.Context(), id, value); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
			t.Fatal(err)
		}
		mark(t, b.JS, "2") // as if it had been killed before it was done
	}
	for bucket, want := range map[string][]string{
		streams.BucketPods: {"driven", "lone", "unreadable"}, streams.BucketWorkerPods: {"ep.own"},
	} {
		keys, err := bucketOf(t, b.JS, bucket).Keys(t.Context())
		if slices.Sort(keys); err != nil || !slices.Equal(keys, want) {
			t.Errorf("got %v, %v in %s, want %v", keys, err, bucket, want)
		}
	}
}

// Schema 4 on what 3 left: tokens and pods get a TTL, those that are there stay.
func TestApplyLeadsFromSchema3(t *testing.T) {
	b := start(t)
	aging := []string{streams.BucketTokens, streams.BucketPods, streams.BucketWorkerPods}
	for _, name := range aging {
		if err := b.JS.DeleteKeyValue(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		kv, err := b.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: name, Storage: jetstream.FileStorage, Replicas: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.PutString(t.Context(), "ep.a", "{}"); err != nil {
			t.Fatal(err)
		}
	}
	mark(t, b.JS, "3")
	for range 2 {
		if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range aging {
		if c := stream(t, b.JS, streams.Bucket(name)).CachedInfo(); !c.Config.AllowMsgTTL || c.State.Msgs != 1 {
			t.Errorf("%s: got ttls %v and %d messages, want ttls and one", name, c.Config.AllowMsgTTL, c.State.Msgs)
		}
	}
}

func bucketOf(t *testing.T, js jetstream.JetStream, name string) jetstream.KeyValue {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// A backup copies what is ours, all of it, and in the order that makes the
// copies fit together.
func TestBackupOrder(t *testing.T) {
	b := start(t)
	var names []string
	for name := range b.JS.StreamNames(t.Context()).Name() {
		names = append(names, name)
	}
	got := streams.BackupOrder(append(slices.Clone(names), "ORDERS", "KV_records_x", "OUTPUT_"))
	if len(got) != len(names) {
		t.Errorf("got %v, want all of %v and no more", got, names)
	}
	at := func(name string) int { return slices.Index(got, name) }
	order := []string{
		streams.Bucket(streams.BucketEndpoints), streams.Bucket(streams.BucketPositions), streams.Bucket(streams.BucketCounts), streams.Events,
		streams.Undelivered, streams.Payloads(0), streams.Jobs("ep"), streams.Records(0), streams.Output(0),
	}
	if !slices.IsSortedFunc(order, func(x, y string) int { return at(x) - at(y) }) || at(streams.Webhooks) > at(streams.Undelivered) {
		t.Errorf("got %v, want in this order %v", got, order)
	}
}
