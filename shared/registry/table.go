package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/streams"
)

// Table is a bucket whose values are T, as JSON. Reads come from the leader
// and see every acknowledged write.
type Table[T any] struct {
	bucket  string
	subject string // of a key, up to the key
	kv      jetstream.KeyValue
	bus     *bus.Client
	// skipsUnreadable leaves values out of lists that cannot be read: it is for
	// buckets that processes write which are not trusted.
	skipsUnreadable bool
}

// entry is a value with what the bucket knows about it.
type entry[T any] struct {
	key      string
	value    T
	revision uint64
	written  time.Time     // server time
	received time.Time     // local clock
	ttl      time.Duration // of the message (Nats-TTL), 0 for none; get alone knows
}

// OpenTable binds to a bucket that exists already.
func OpenTable[T any](ctx context.Context, js jetstream.JetStream, bucket string) (*Table[T], error) {
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return nil, explain(ctx, "open bucket "+bucket, err)
	}
	return &Table[T]{bucket: bucket, subject: streams.KeySubject(bucket, ""), kv: kv, bus: bus.Bind(js.Conn())}, nil
}

// opener opens what a Registry has. After the first error, which it keeps, what it returns
// is of no use.
type opener struct {
	js  jetstream.JetStream
	log *slog.Logger
	err error
}

// newOpener takes a nil log as silence.
func newOpener(js jetstream.JetStream, log *slog.Logger) *opener {
	return &opener{js: js, log: cmp.Or(log, slog.New(slog.DiscardHandler))}
}

func open[T any](ctx context.Context, o *opener, bucket string) *Table[T] {
	if o.err == nil {
		t, err := OpenTable[T](ctx, o.js, bucket)
		if err == nil {
			return t
		}
		o.err = err
	}
	return &Table[T]{bucket: bucket}
}

// Get returns the value and its revision, or ErrNotFound.
func (t *Table[T]) Get(ctx context.Context, key string) (T, uint64, error) {
	e, err := t.get(ctx, key)
	return e.value, e.revision, err
}

// Create stores v under a key that holds nothing, or returns ErrExists, or ErrInvalid if v is
// larger than a message of NATS may be, as Update and Put do.
func (t *Table[T]) Create(ctx context.Context, key string, v T) (uint64, error) {
	return t.write(ctx, "create", key, v, func(ctx context.Context, data []byte) (uint64, error) {
		return t.kv.Create(ctx, key, data)
	})
}

// Update replaces the value that has this revision, or returns ErrConflict.
func (t *Table[T]) Update(ctx context.Context, key string, v T, revision uint64) (uint64, error) {
	return t.write(ctx, "update", key, v, func(ctx context.Context, data []byte) (uint64, error) {
		return t.kv.Update(ctx, key, data, revision)
	})
}

// Put stores v whatever the key holds. It is for heartbeats only: it would
// overwrite what somebody else just decided.
func (t *Table[T]) Put(ctx context.Context, key string, v T) error {
	_, err := t.write(ctx, "put", key, v, func(ctx context.Context, data []byte) (uint64, error) {
		return t.kv.Put(ctx, key, data)
	})
	return err
}

// Delete removes the key; that it holds nothing is no error.
func (t *Table[T]) Delete(ctx context.Context, key string) error {
	return t.purge(ctx, key)
}

// deleteAt removes the key if it has this revision, or returns ErrConflict.
func (t *Table[T]) deleteAt(ctx context.Context, key string, revision uint64) error {
	return t.purge(ctx, key, jetstream.LastRevision(revision))
}

func (t *Table[T]) purge(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return explain(ctx, t.doing("delete", key), t.kv.Purge(call, key, opts...))
}

// List returns all values in no particular order.
func (t *Table[T]) List(ctx context.Context) ([]T, error) {
	entries, err := t.list(ctx, jetstream.AllKeys)
	if err != nil {
		return nil, err
	}
	return valuesOf(entries), nil
}

func valuesOf[T any](entries []entry[T]) []T {
	values := make([]T, 0, len(entries))
	for _, e := range entries {
		values = append(values, e.value)
	}
	return values
}

func (t *Table[T]) doing(what, key string) string {
	return what + " " + key + " in " + t.bucket
}

func (t *Table[T]) write(ctx context.Context, what, key string, v T, do func(context.Context, []byte) (uint64, error)) (uint64, error) {
	data, err := job.AppendJSON(nil, v)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", t.doing(what, key), err)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	revision, err := do(call, data)
	if errors.Is(err, nats.ErrMaxPayload) { // another try is as large
		return 0, fmt.Errorf("%s: %w: the record has %d bytes, more than a message of NATS may have (max_payload)", t.doing(what, key), ErrInvalid, len(data))
	}
	return revision, explain(ctx, t.doing(what, key), err)
}

func (t *Table[T]) get(ctx context.Context, key string) (entry[T], error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	msg, err := t.bus.LeaderLast(call, streams.Bucket(t.bucket), t.subject+key)
	if err != nil {
		return entry[T]{}, explain(ctx, t.doing("get", key), err)
	}
	ttl := ttlOf(msg.Header)
	if len(msg.Data) == 0 { // a delete marker; no JSON is empty
		return entry[T]{key: key, revision: msg.Seq, written: msg.Time, ttl: ttl}, fmt.Errorf("%s: %w", t.doing("get", key), ErrNotFound)
	}
	e, err := decode[T](key, msg.Data, msg.Seq, msg.Time)
	e.ttl = ttl
	return e, err
}

// list returns the entries whose keys match the filter, which may have
// wildcards.
func (t *Table[T]) list(ctx context.Context, filter string) ([]entry[T], error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	values, err := t.values(call, filter)
	if err != nil {
		return nil, explain(ctx, "list "+t.bucket, err)
	}
	entries := make([]entry[T], 0, len(values))
	for _, v := range values {
		e, err := decode[T](t.keyOf(v), v.Data, v.Seq, v.Time)
		switch {
		case err == nil:
			entries = append(entries, e)
		case !t.skipsUnreadable:
			return nil, err
		}
	}
	return entries, nil
}

// values returns the messages of the keys that match the filter and hold a value.
func (t *Table[T]) values(ctx context.Context, filter string) ([]*bus.Message, error) {
	all, err := t.bus.LastOfEach(ctx, streams.Bucket(t.bucket), t.subject+filter)
	return slices.DeleteFunc(all, func(m *bus.Message) bool { return len(m.Data) == 0 }), err // delete markers
}

func (t *Table[T]) keyOf(m *bus.Message) string { return strings.TrimPrefix(m.Subject, t.subject) }

// state is that of the bucket.
func (t *Table[T]) state(ctx context.Context) (bus.StreamState, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	state, err := t.bus.StreamState(call, streams.Bucket(t.bucket))
	return state, explain(ctx, "look at bucket "+t.bucket, err)
}

// last returns the sequence of the last write to the bucket.
func (t *Table[T]) last(ctx context.Context) (uint64, error) {
	state, err := t.state(ctx)
	return state.LastSeq, err
}

func decode[T any](key string, data []byte, revision uint64, written time.Time) (entry[T], error) {
	e := entry[T]{key: key, revision: revision, written: written, received: time.Now()}
	if err := json.Unmarshal(data, &e.value); err != nil {
		return e, fmt.Errorf("read %s: %w", key, err)
	}
	return e, nil
}

// maxUpdates is how often a change begins again when others change the same value at the
// same time.
const maxUpdates = 10

// errUnchanged is how a change says that there is nothing to write.
var errUnchanged = errors.New("registry: nothing to change")

// ignoreUnchanged is err, but nil for errUnchanged.
func ignoreUnchanged(err error) error {
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// change stores what f makes of the value under the key, or of the zero value if the key
// holds nothing, and returns the entry as it is then. f is called again if somebody else was
// faster. After errUnchanged of f nothing is written: it is returned with the value of f.
// The other errors of f are returned as they are.
func (t *Table[T]) change(ctx context.Context, key string, f func(old T, found bool) (T, error)) (entry[T], error) {
	read := func() (entry[T], error) { return t.get(ctx, key) }
	return changeEntry(t.doing("change", key), read, f, func(v T, old entry[T]) (entry[T], error) {
		revision, err := t.Update(ctx, key, v, old.revision)
		return entry[T]{key: key, value: v, revision: revision}, err
	})
}

// changeEntry is change with the ways to read and to write the entry. Of a key that holds
// nothing read returns ErrNotFound, with the revision of its delete marker, or 0.
func changeEntry[T any](doing string, read func() (entry[T], error), f func(T, bool) (T, error), write func(v T, old entry[T]) (entry[T], error)) (entry[T], error) {
	for range maxUpdates {
		old, err := read()
		found := !errors.Is(err, ErrNotFound)
		if err != nil && found {
			return entry[T]{}, err
		}
		var before T
		if found {
			before = old.value
		}
		v, err := f(before, found)
		if errors.Is(err, errUnchanged) {
			old.value = v
			return old, err
		}
		if err != nil {
			return entry[T]{}, err
		}
		if made, err := write(v, old); !errors.Is(err, ErrConflict) {
			return made, err
		}
	}
	return entry[T]{}, fmt.Errorf("%s: %w", doing, ErrConflict)
}

// podTTL is how long the record of a worker's pod, and the token of a fleet's worker,
// count after their last write. An installation that was stopped for longer starts
// its fleets again from what the endpoints say.
const podTTL = 7 * 24 * time.Hour

// maxRenewals bounds the writes of one call that renews.
const maxRenewals = 100

// agingTable is a Table of values that expire unless they are written again. The
// server removes them, and the delete markers of their keys, by per-message TTL, so
// the bucket does not grow with all that ever was in it.
//
// A killed server brings back what gave way to a newer message of its key, once
// that message is gone (docs/adr/0013). So no message of a key expires before
// those that it replaces, and none that follows one without a TTL has one.
type agingTable[T any] struct {
	*Table[T]
	js jetstream.JetStream
	// ttl is how long a value counts after its last write, in whole seconds.
	ttl time.Duration
	// expires reports whether a value has the TTL. The others stay until they are removed.
	expires func(T) bool
}

func openAging[T any](ctx context.Context, o *opener, bucket string, ttl time.Duration, expires func(T) bool) *agingTable[T] {
	return &agingTable[T]{Table: open[T](ctx, o, bucket), js: o.js, ttl: ttl, expires: expires}
}

// isExpired reports whether the entry does not count any more. The server removes
// it about then, and no watch reports that.
func (t *agingTable[T]) isExpired(e entry[T]) bool {
	return t.expires(e.value) && time.Since(e.written) > t.ttl
}

// firstExpiry returns when the first of the entries expires, unless that is after before.
// The zero time is never.
func (t *agingTable[T]) firstExpiry(entries []entry[T], before time.Time) time.Time {
	for i := range entries {
		e := &entries[i]
		if at := e.written.Add(t.ttl); t.expires(e.value) && (before.IsZero() || at.Before(before)) {
			before = at
		}
	}
	return before
}

// read returns what counts under the key, or ErrNotFound. The entry has the
// revision and the TTL of the key's last message in any case, for replace.
func (t *agingTable[T]) read(ctx context.Context, key string) (entry[T], error) {
	e, err := t.get(ctx, key)
	if err == nil && t.isExpired(e) {
		err = fmt.Errorf("%s: expired: %w", t.doing("get", key), ErrNotFound)
	}
	return e, err
}

// valid keeps those of the entries that count.
func (t *agingTable[T]) valid(entries []entry[T]) []entry[T] {
	return slices.DeleteFunc(entries, t.isExpired)
}

// create stores v under a key that holds nothing, or returns ErrExists.
func (t *agingTable[T]) create(ctx context.Context, key string, v T) (entry[T], error) {
	return t.change(ctx, key, func(old T, found bool) (T, error) {
		if found {
			return old, fmt.Errorf("%s: %w", t.doing("create", key), ErrExists)
		}
		return v, nil
	})
}

// change is Table.change. What has expired is not found.
func (t *agingTable[T]) change(ctx context.Context, key string, f func(old T, found bool) (T, error)) (entry[T], error) {
	read := func() (entry[T], error) { return t.read(ctx, key) }
	return changeEntry(t.doing("change", key), read, f, func(v T, old entry[T]) (entry[T], error) { return t.replace(ctx, key, v, old) })
}

// replace stores v in place of old, as get or read returned it, or returns ErrConflict.
func (t *agingTable[T]) replace(ctx context.Context, key string, v T, old entry[T]) (entry[T], error) {
	made := entry[T]{key: key, value: v}
	if t.expires(v) && !old.isLasting() {
		made.ttl = max(t.ttl, old.ttl)
	}
	var err error
	made.revision, err = t.write(ctx, "write", key, v, func(ctx context.Context, data []byte) (uint64, error) {
		m := nats.NewMsg(t.subject + key)
		m.Data = data
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(old.revision, 10))
		if made.ttl > 0 {
			m.Header.Set(jetstream.MsgTTLHeader, strconv.Itoa(int(made.ttl/time.Second))+"s")
		}
		ack, err := t.js.PublishMsg(ctx, m)
		if bus.IsConflict(err) {
			return 0, jetstream.ErrKeyRevisionMismatch
		}
		if err != nil {
			return 0, err
		}
		return ack.Sequence, nil
	})
	made.written = time.Now()
	made.received = made.written
	return made, err
}

// remove replaces old, as get or read returned it, by a delete marker, or returns
// ErrConflict.
func (t *agingTable[T]) remove(ctx context.Context, old entry[T]) error {
	opts := []jetstream.KVDeleteOpt{jetstream.LastRevision(old.revision)}
	if !old.isLasting() {
		opts = append(opts, jetstream.PurgeTTL(max(t.ttl, old.ttl)))
	}
	return t.purge(ctx, old.key, opts...)
}

// clear removes what the key holds; that it holds nothing is no error.
func (t *agingTable[T]) clear(ctx context.Context, key string) error {
	for range maxUpdates {
		old, err := t.get(ctx, key)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err == nil {
			err = t.remove(ctx, old)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("clear %s: %w", key, ErrConflict)
}

// renew writes those of the entries again whose TTL is a third over or more, so that
// they do not expire, but maxRenewals of them at most. An entry that changes meanwhile
// is left as it is then.
func (t *agingTable[T]) renew(ctx context.Context, entries []entry[T]) error {
	var errs []error
	left := maxRenewals
	for _, e := range entries {
		if !t.isDue(e) || left == 0 {
			continue
		}
		left--
		got, err := t.read(ctx, e.key)
		if err == nil && t.isDue(got) {
			_, err = t.replace(ctx, e.key, got.value, got)
		}
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (t *agingTable[T]) isDue(e entry[T]) bool {
	return t.expires(e.value) && time.Since(e.written) >= t.ttl/3
}

// isLasting reports whether the last message of the key, a value or a delete
// marker, has no TTL.
func (e entry[T]) isLasting() bool { return e.revision > 0 && e.ttl == 0 }

// ttlOf is the TTL of a message, 0 for none and for a TTL that never ends.
func ttlOf(header nats.Header) time.Duration {
	ttl, err := time.ParseDuration(header.Get(jetstream.MsgTTLHeader))
	if err != nil {
		return 0
	}
	return ttl
}
