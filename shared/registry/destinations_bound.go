package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// put replaces the entry old by v (its revision 0: the key never had a value), or
// returns ErrConflict. The bucket forgets v by itself unless it is paused, or the
// key must not be forgotten (lasting).
func (d *Destinations) put(ctx context.Context, key string, v Destination, old entry[Destination]) error {
	_, err := d.table.write(ctx, "put", key, v, func(ctx context.Context, data []byte) (uint64, error) {
		m := nats.NewMsg(d.table.subject + key)
		m.Data = data
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(old.revision, 10))
		if !v.Paused && !old.lasting() {
			m.Header.Set(jetstream.MsgTTLHeader, strconv.Itoa(int(failuresAge/time.Second))+"s")
		}
		ack, err := d.js.PublishMsg(ctx, m)
		var api *jetstream.APIError
		switch {
		case err == nil:
			return ack.Sequence, nil
		case errors.As(err, &api) && slices.Contains(
			[]jetstream.ErrorCode{jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant}, api.ErrorCode):
			return 0, jetstream.ErrKeyRevisionMismatch
		}
		return 0, err
	})
	return err
}

// lasting reports whether the key had a value without a ttl. Whatever follows
// such a value must have no ttl either: a killed server brings back what gave
// way to a message that is gone since (docs/adr/0013), so the pause would be back.
func (e entry[T]) lasting() bool { return e.revision > 0 && !e.ages }

// clear removes what the key holds.
func (d *Destinations) clear(ctx context.Context, key string) error {
	for range maxUpdates {
		old, err := d.table.get(ctx, key)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err == nil {
			err = d.remove(ctx, old)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("clear %s: %w", key, ErrConflict)
}

// remove replaces an entry, as get returned it, by a marker that lasts as long
// as the entry would have, or returns ErrConflict.
func (d *Destinations) remove(ctx context.Context, old entry[Destination]) error {
	opts := []jetstream.KVDeleteOpt{jetstream.LastRevision(old.revision)}
	if !old.lasting() {
		opts = append(opts, jetstream.PurgeTTL(d.markerAge))
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return explain(ctx, d.table.doing("delete", old.key), d.table.kv.Purge(call, old.key, opts...))
}

// bound counts what is new of an endpoint, and now and then removes the oldest
// that are not paused, so that whoever may name webhooks cannot fill the
// bucket. What it does not get done is left to the next time.
func (d *Destinations) bound(ctx context.Context, endpoint string) {
	d.mu.Lock()
	n := d.made[endpoint]
	d.made[endpoint] = (n + 1) % failuresCheck
	d.mu.Unlock()
	if n != 0 {
		return
	}
	entries, err := d.table.list(ctx, endpoint+".*")
	if err != nil {
		d.cache.log.DebugContext(ctx, "destinations not counted", "endpoint", endpoint, "err", err)
		return
	}
	for _, e := range surplus(entries) {
		// Only as it was read: it may fail again, or be paused, meanwhile.
		if now, err := d.table.get(ctx, e.key); err == nil && now.revision == e.revision {
			_ = d.remove(ctx, now)
		}
	}
}

// surplus are the destinations beyond failuresMost that are not paused, and
// those that are forgotten: what failed last is kept.
func surplus(entries []entry[Destination]) []entry[Destination] {
	entries = slices.DeleteFunc(entries, func(e entry[Destination]) bool { return e.value.Paused })
	slices.SortFunc(entries, func(a, b entry[Destination]) int { return b.written.Compare(a.written) })
	keep := min(len(entries), failuresMost)
	for keep > 0 && forgotten(entries[keep-1]) {
		keep--
	}
	return entries[keep:]
}
