package registry

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/singleflight"

	"flightline/shared/bus"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
)

const (
	// MaxStaleness is how long a cache answers after it was last known to be complete.
	MaxStaleness = 2 * time.Second
	// checkInterval is the pause between two comparisons with the bucket.
	checkInterval = 500 * time.Millisecond
	// maxBehind is how many of them may find the same write missing before the
	// watch is thought to be broken and begun again.
	maxBehind = 3
	// watchPause is the pause before a watch that ended is begun again.
	watchPause = 250 * time.Millisecond
	// beginTimeout bounds the list that a cache begins with.
	beginTimeout = 30 * time.Second
	// pruneInterval is the pause between two looks for what expired.
	pruneInterval = 10 * time.Minute
)

// cache is a bucket in memory. Its zero state, and the state after Run ended,
// is that it vouches for nothing.
type cache[T any] struct {
	table *Table[T]
	log   *slog.Logger
	// expired are entries whose time came; nil: none has a time.
	expired func(entry[T]) bool

	unknown unknowns
	reads   singleflight.Group // of the bucket, by key

	mu       sync.RWMutex
	entries  map[string]entry[T]
	changes  uint64    // how often entries changed
	applied  uint64    // the last write to the bucket that is in entries
	begun    time.Time // when the present watch had its first round; local clock
	complete time.Time // when entries were last known to hold all writes; local clock
	changed  chan struct{}
	pruned   time.Time // when what expired was last looked for
}

func newCache[T any](table *Table[T], log *slog.Logger) *cache[T] {
	return &cache[T]{table: table, log: log, entries: map[string]entry[T]{}, changed: make(chan struct{})}
}

// newAgingCache is newCache for values that expire: no watch reports that.
func newAgingCache[T any](table *agingTable[T], log *slog.Logger) *cache[T] {
	c := newCache(table.Table, log)
	c.expired = table.isExpired
	return c
}

func (c *cache[T]) isExpired(e entry[T]) bool { return c.expired != nil && c.expired(e) }

// get answers from memory. Without vouched nothing follows from found.
func (c *cache[T]) get(key string) (e entry[T], found, vouched bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if e, found = c.entries[key]; found && c.isExpired(e) {
		e, found = entry[T]{}, false
	}
	return e, found, c.vouches()
}

// find answers from memory, or asks the bucket. What the bucket did not have is
// ErrNotFound for unknownAge without another question, unless the watch brings it.
// For keys that strangers make up.
func (c *cache[T]) find(ctx context.Context, key string) (entry[T], error) {
	if _, found, _ := c.get(key); !found && c.unknown.has(key) {
		return entry[T]{}, ErrNotFound
	}
	got, err := c.valid(ctx, key)
	if errors.Is(err, ErrNotFound) {
		c.unknown.add(key)
	}
	return got, err
}

// valid is load, but what has expired is ErrNotFound.
func (c *cache[T]) valid(ctx context.Context, key string) (entry[T], error) {
	got, err := c.load(ctx, key)
	if err == nil && c.isExpired(got) {
		err = ErrNotFound
	}
	return got, err
}

// load answers from memory, or asks the bucket. While memory has the key and may not
// be believed, as when the bus is slow, those who ask at the same time share a read
// that is younger than MaxStaleness: a read for each would keep the bus slow.
func (c *cache[T]) load(ctx context.Context, key string) (entry[T], error) {
	known, found, vouched := c.get(key)
	switch {
	case found && vouched:
		return known, nil
	case !found:
		return c.table.get(ctx, key)
	}
	key = strings.Clone(key) // the read may outlast the request whose memory it is
	read := c.reads.DoChan(key, func() (any, error) {
		defer time.AfterFunc(MaxStaleness, func() { c.reads.Forget(key) }).Stop()
		ctx, cancel := bus.Bounded(context.WithoutCancel(ctx))
		defer cancel()
		return c.table.get(ctx, key)
	})
	select {
	case got := <-read:
		e, _ := got.Val.(entry[T])
		if known.revision > e.revision && got.Err == nil { // this process wrote meanwhile
			e = known
		}
		return e, got.Err
	case <-ctx.Done():
		return entry[T]{}, explain(ctx, "get "+key+" in "+c.table.bucket, ctx.Err())
	}
}

// vouches reports whether memory may be believed; mu must be held.
func (c *cache[T]) vouches() bool { return time.Since(c.complete) < MaxStaleness }

// all returns the entries that pass keep, nil for all, if the cache vouches for them.
func (c *cache[T]) all(keep func(entry[T]) bool) (entries []entry[T], vouched bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if keep == nil {
		entries = make([]entry[T], 0, len(c.entries))
	}
	for _, e := range c.entries {
		if (keep == nil || keep(e)) && !c.isExpired(e) {
			entries = append(entries, e)
		}
	}
	return entries, c.vouches()
}

// list returns the entries whose keys match the filter and that pass keep, from memory if
// it can; else those that match the filter alone.
func (c *cache[T]) list(ctx context.Context, filter string, keep func(entry[T]) bool) ([]entry[T], error) {
	entries, vouched := c.all(keep)
	if vouched {
		return entries, nil
	}
	entries, err := c.table.list(ctx, filter)
	return slices.DeleteFunc(entries, c.isExpired), err
}

// version is another number after each change of the entries, though not once one
// expires. Without vouched nothing follows from it.
func (c *cache[T]) version() (changes uint64, vouched bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changes, c.vouches()
}

// age is for how long the bucket has been followed without a gap.
func (c *cache[T]) age() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return time.Since(c.begun)
}

// seen returns the sequence of the last write applied, and a channel that is
// closed when a later one is.
func (c *cache[T]) seen() (uint64, <-chan struct{}) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.applied, c.changed
}

// put makes a write of this process visible to it at once. The watcher brings
// it again.
func (c *cache[T]) put(e entry[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.revision > c.applied && e.revision > c.entries[e.key].revision {
		e.received = time.Now()
		c.entries[e.key] = e
		c.changes++
	}
}

// stored is put of a write, unless it failed. It returns the value.
func (c *cache[T]) stored(e entry[T], err error) (T, error) {
	if err == nil {
		c.put(e)
	}
	return e.value, err
}

// run keeps the cache up to date until ctx ends.
func (c *cache[T]) run(ctx context.Context) error {
	outage := telemetry.NewOutageLog()
	for {
		err := c.follow(ctx)
		if retry.Sleep(ctx, watchPause) != nil {
			return nil //nolint:nilerr // ctx has ended, as it may
		}
		outage.Warn(ctx, c.log, "registry watch ended, starting again", slog.String("bucket", c.table.bucket), slog.Any("err", err))
	}
}

var (
	errBehind    = errors.New("the watch lags, or the bucket went back")
	errWatchOver = errors.New("the watch was closed")
)

// follow applies one watch until it breaks.
func (c *cache[T]) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	upTo, err := c.begin(ctx)
	if err != nil {
		return err
	}
	watch, err := c.table.kv.WatchAll(ctx, jetstream.ResumeFromRevision(upTo+1))
	if err != nil {
		return explain(ctx, "watch "+c.table.bucket, err)
	}
	defer func() { _ = watch.Stop() }() // it ends with ctx in any case
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	var behind lag
	for {
		select {
		case got, open := <-watch.Updates():
			switch {
			case !open:
				return errWatchOver
			case got != nil: // nil: no value of the past comes any more
				c.apply(got)
			}
		case <-check.C:
			if c.check(ctx, &behind) {
				return errBehind
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin replaces what the cache held by what the bucket holds. All writes up to the
// sequence upTo are in that, and some later ones may be.
func (c *cache[T]) begin(ctx context.Context) (upTo uint64, err error) {
	asked := time.Now()
	if upTo, err = c.table.last(ctx); err != nil {
		return 0, err
	}
	call, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	values, err := c.table.values(call, jetstream.AllKeys)
	if err != nil {
		return 0, explain(ctx, "list "+c.table.bucket, err)
	}
	entries := make(map[string]entry[T], len(values))
	for _, v := range values {
		if e, ok := c.decode(c.table.keyOf(v), v.Data, v.Seq, v.Time); ok {
			entries[e.key] = e
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.entries { // what this process has put since
		if e.revision > max(upTo, entries[key].revision) && e.received.After(asked) {
			entries[key] = e
		}
	}
	c.entries = entries
	c.changes++
	c.begun, c.complete = asked, asked
	c.advance(upTo)
	return upTo, nil
}

// apply takes in a write that the watch reports, unless a later one of its key is known.
func (c *cache[T]) apply(got jetstream.KeyValueEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.advance(got.Revision())
	if c.entries[got.Key()].revision > got.Revision() {
		return
	}
	if got.Operation() == jetstream.KeyValuePut {
		if e, ok := c.decode(got.Key(), got.Value(), got.Revision(), got.Created()); ok {
			c.entries[e.key] = e
			return
		}
	}
	delete(c.entries, got.Key())
}

func (c *cache[T]) decode(key string, data []byte, revision uint64, written time.Time) (e entry[T], ok bool) {
	e, err := decode[T](key, data, revision, written)
	if err != nil {
		c.log.Error("registry value cannot be read", "bucket", c.table.bucket, "err", err)
	}
	return e, err == nil
}

// advance wakes those who wait for a later write; mu must be held.
func (c *cache[T]) advance(to uint64) {
	c.applied = to
	close(c.changed)
	c.changed = make(chan struct{})
}

// lag is how often one write was found missing.
type lag struct {
	wanted uint64
	times  int
}

// prune drops what expired, now and then; mu must be held.
func (c *cache[T]) prune(now time.Time) {
	if c.expired == nil || now.Sub(c.pruned) < pruneInterval {
		return
	}
	c.pruned = now
	maps.DeleteFunc(c.entries, func(_ string, e entry[T]) bool { return c.expired(e) })
}

// check compares the cache with the bucket and reports whether the watch must
// be given up: it lags, or the bucket went back, which was lost and made again, or
// restored. When the bucket cannot be asked, trust runs out by itself.
func (c *cache[T]) check(ctx context.Context, behind *lag) (broken bool) {
	applied, _ := c.seen()
	asked := time.Now()
	last, err := c.table.last(ctx)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prune(asked)
	if c.applied >= last && applied <= last {
		if !c.vouches() { // what expired meanwhile may have been written again, and was not
			c.begun = asked
		}
		c.complete, *behind = asked, lag{}
		return false
	}
	if behind.times == 0 || c.applied >= behind.wanted && applied <= last {
		*behind = lag{wanted: last}
	}
	behind.times++
	return behind.times > maxBehind
}

const (
	// unknownAge is how long a key that a bucket did not have is not asked for again.
	unknownAge = time.Second
	// maxUnknown bounds the keys that are remembered; with one more all are forgotten.
	maxUnknown = 1024
)

// unknowns remembers which keys a bucket did not have. It is safe for concurrent
// use.
type unknowns struct {
	mu    sync.Mutex
	asked map[string]time.Time
}

// has reports whether the bucket did not have the key when it was last asked, less
// than unknownAge ago.
func (u *unknowns) has(key string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Since(u.asked[key]) < unknownAge
}

// add notes that the bucket did not have the key. It keeps the string.
func (u *unknowns) add(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.asked == nil || len(u.asked) >= maxUnknown {
		u.asked = map[string]time.Time{}
	}
	u.asked[key] = time.Now()
}
