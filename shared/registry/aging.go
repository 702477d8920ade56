package registry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

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

func openAgingTable[T any](ctx context.Context, js jetstream.JetStream, bucket string, ttl time.Duration, expires func(T) bool) (*agingTable[T], error) {
	t, err := OpenTable[T](ctx, js, bucket)
	if err != nil {
		return nil, err
	}
	return &agingTable[T]{Table: t, js: js, ttl: ttl, expires: expires}, nil
}

// isExpired reports whether the entry does not count any more. The server removes
// it about then, and no watch reports that.
func (t *agingTable[T]) isExpired(e entry[T]) bool {
	return t.expires(e.value) && time.Since(e.written) > t.ttl
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

// valid returns those of the entries that count.
func (t *agingTable[T]) valid(entries []entry[T]) []entry[T] {
	kept := make([]entry[T], 0, len(entries))
	for _, e := range entries {
		if !t.isExpired(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// create stores v under a key that holds nothing, or returns ErrExists.
func (t *agingTable[T]) create(ctx context.Context, key string, v T) (entry[T], error) {
	var old entry[T] // most keys are new
	for range maxUpdates {
		made, err := t.replace(ctx, key, v, old)
		if !errors.Is(err, ErrConflict) {
			return made, err
		}
		old, err = t.read(ctx, key)
		if err == nil {
			return old, fmt.Errorf("%s: %w", t.doing("create", key), ErrExists)
		}
		if !errors.Is(err, ErrNotFound) {
			return old, err
		}
	}
	return old, fmt.Errorf("%s: %w", t.doing("create", key), ErrExists)
}

// replace stores v in place of old, as get or read returned it (the zero entry: the
// key has no message), or returns ErrConflict.
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
		if isConflict(err) {
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

// isConflict reports whether the server refused a write because of its expected
// sequence.
func isConflict(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// remove replaces old, as get or read returned it, by a delete marker, or returns
// ErrConflict.
func (t *agingTable[T]) remove(ctx context.Context, old entry[T]) error {
	opts := []jetstream.KVDeleteOpt{jetstream.LastRevision(old.revision)}
	if !old.isLasting() {
		opts = append(opts, jetstream.PurgeTTL(max(t.ttl, old.ttl)))
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return explain(ctx, t.doing("delete", old.key), t.kv.Purge(call, old.key, opts...))
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

// ttlOf is the TTL of a message, 0 for none and for one that does not end.
func ttlOf(header nats.Header) time.Duration {
	ttl, err := time.ParseDuration(header.Get(jetstream.MsgTTLHeader))
	if err != nil {
		return 0
	}
	return ttl
}
