package registry

import (
	"context"
	"slices"
)

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
	for _, e := range d.surplus(entries) {
		// Only as it was read: it may fail again, or be paused, meanwhile.
		if now, err := d.table.get(ctx, e.key); err == nil && now.revision == e.revision {
			_ = d.table.remove(ctx, now)
		}
	}
}

// surplus are the destinations beyond failuresMost that are not paused, and
// those that are forgotten: what failed last is kept.
func (d *Destinations) surplus(entries []entry[Destination]) []entry[Destination] {
	entries = slices.DeleteFunc(entries, func(e entry[Destination]) bool { return e.value.Paused })
	slices.SortFunc(entries, func(a, b entry[Destination]) int { return b.written.Compare(a.written) })
	keep := min(len(entries), failuresMost)
	for keep > 0 && d.table.isExpired(entries[keep-1]) {
		keep--
	}
	return entries[keep:]
}
