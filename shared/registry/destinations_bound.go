package registry

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// put stores v if the key has this revision (0: it never had a value), or
// returns ErrConflict. The bucket forgets it by itself unless it is paused.
func (d *Destinations) put(ctx context.Context, key string, v Destination, revision uint64) error {
	_, err := d.table.write(ctx, "put", key, v, func(ctx context.Context, data []byte) (uint64, error) {
		m := nats.NewMsg(d.table.subject + key)
		m.Data = data
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(revision, 10))
		if !v.Paused {
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

// remove leaves a marker that the bucket forgets, too.
func (d *Destinations) remove(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return explain(ctx, d.table.doing("delete", key), d.table.kv.Purge(call, key, append(opts, jetstream.PurgeTTL(markerAge))...))
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
		_ = d.remove(ctx, e.key, jetstream.LastRevision(e.revision))
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
