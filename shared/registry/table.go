package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Table is a bucket whose values are T, as JSON. Reads come from the leader
// and see every acknowledged write.
type Table[T any] struct {
	bucket  string
	subject string // of a key, up to the key
	kv      jetstream.KeyValue
	stream  jetstream.Stream
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
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, explain(ctx, "look at bucket "+bucket, err)
	}
	backing, ok := status.(*jetstream.KeyValueBucketStatus)
	if !ok || len(backing.StreamInfo().Config.Subjects) != 1 {
		return nil, fmt.Errorf("bucket %s is not what streams.Apply makes", bucket)
	}
	stream, err := js.Stream(ctx, backing.StreamInfo().Config.Name)
	if err != nil {
		return nil, explain(ctx, "open bucket "+bucket, err)
	}
	// Without direct gets the client asks the leader: a follower may miss a
	// write that was acknowledged a moment ago.
	stream.CachedInfo().Config.AllowDirect = false
	return &Table[T]{
		bucket:  bucket,
		subject: strings.TrimSuffix(backing.StreamInfo().Config.Subjects[0], ">"),
		kv:      kv,
		stream:  stream,
	}, nil
}

// Get returns the value and its revision, or ErrNotFound.
func (t *Table[T]) Get(ctx context.Context, key string) (T, uint64, error) {
	e, err := t.get(ctx, key)
	return e.value, e.revision, err
}

// Create stores v under a key that holds nothing, or returns ErrExists.
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
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return explain(ctx, t.doing("delete", key), t.kv.Purge(call, key))
}

// List returns all values in no particular order.
func (t *Table[T]) List(ctx context.Context) ([]T, error) {
	entries, err := t.list(ctx, jetstream.AllKeys)
	if err != nil {
		return nil, err
	}
	values := make([]T, 0, len(entries))
	for _, e := range entries {
		values = append(values, e.value)
	}
	return values, nil
}

func (t *Table[T]) doing(what, key string) string {
	return what + " " + key + " in " + t.bucket
}

func (t *Table[T]) write(ctx context.Context, what, key string, v T, do func(context.Context, []byte) (uint64, error)) (uint64, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", t.doing(what, key), err)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	revision, err := do(call, data)
	return revision, explain(ctx, t.doing(what, key), err)
}

func (t *Table[T]) get(ctx context.Context, key string) (entry[T], error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	msg, err := t.stream.GetLastMsgForSubject(call, t.subject+key)
	if err != nil {
		return entry[T]{}, explain(ctx, t.doing("get", key), err)
	}
	ttl := ttlOf(msg.Header)
	if len(msg.Data) == 0 { // a delete marker; no JSON is empty
		return entry[T]{key: key, revision: msg.Sequence, written: msg.Time, ttl: ttl}, fmt.Errorf("%s: %w", t.doing("get", key), ErrNotFound)
	}
	e, err := decode[T](key, msg.Data, msg.Sequence, msg.Time)
	e.ttl = ttl
	return e, err
}

// find returns the entry that was written last of those whose keys match the
// filter, which may have wildcards; or ErrNotFound.
func (t *Table[T]) find(ctx context.Context, filter string) (entry[T], error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	msg, err := t.stream.GetLastMsgForSubject(call, t.subject+filter)
	if err != nil {
		return entry[T]{}, explain(ctx, t.doing("find", filter), err)
	}
	if len(msg.Data) > 0 {
		return decode[T](strings.TrimPrefix(msg.Subject, t.subject), msg.Data, msg.Sequence, msg.Time)
	}
	entries, err := t.list(ctx, filter) // that one was deleted; there may be others
	if err != nil {
		return entry[T]{}, err
	}
	if len(entries) == 0 {
		return entry[T]{}, fmt.Errorf("%s: %w", t.doing("find", filter), ErrNotFound)
	}
	return slices.MaxFunc(entries, func(a, b entry[T]) int { return cmp.Compare(a.revision, b.revision) }), nil
}

// list returns the entries whose keys match the filter, which may have
// wildcards.
func (t *Table[T]) list(ctx context.Context, filter string) ([]entry[T], error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	watch, err := t.kv.Watch(call, filter, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, explain(ctx, "list "+t.bucket, err)
	}
	defer func() { _ = watch.Stop() }() // it ends with call in any case
	var entries []entry[T]
	for {
		select {
		case got, open := <-watch.Updates():
			if !open {
				return nil, explain(ctx, "list "+t.bucket, errWatchEnded)
			}
			if got == nil {
				return entries, nil
			}
			e, err := decode[T](got.Key(), got.Value(), got.Revision(), got.Created())
			switch {
			case err == nil:
				entries = append(entries, e)
			case !t.skipsUnreadable:
				return nil, err
			}
		case <-call.Done():
			return nil, explain(ctx, "list "+t.bucket, call.Err())
		}
	}
}

// last returns the sequence of the last write to the bucket.
func (t *Table[T]) last(ctx context.Context) (uint64, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// A handle of its own: Info would bring direct gets back to t.stream.
	status, err := t.kv.Status(call)
	if err != nil {
		return 0, explain(ctx, "look at bucket "+t.bucket, err)
	}
	backing, ok := status.(*jetstream.KeyValueBucketStatus)
	if !ok {
		return 0, fmt.Errorf("look at bucket %s: %w", t.bucket, errNoStream)
	}
	return backing.StreamInfo().State.LastSeq, nil
}

var (
	errWatchEnded = errors.New("the watch ended")
	errNoStream   = errors.New("no stream beneath it")
)

func decode[T any](key string, data []byte, revision uint64, written time.Time) (entry[T], error) {
	e := entry[T]{key: key, revision: revision, written: written, received: time.Now()}
	if err := json.Unmarshal(data, &e.value); err != nil {
		return e, fmt.Errorf("read %s: %w", key, err)
	}
	return e, nil
}
