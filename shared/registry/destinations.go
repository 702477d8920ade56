package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"flightline/streams"
)

const (
	// failuresAge is how long failures of a destination that is not paused are
	// remembered after the last one.
	failuresAge = 7 * 24 * time.Hour
	// maxFailures is about how many such destinations an endpoint has; the
	// oldest give way. They are counted at every failuresCheck-th new one.
	maxFailures, failuresCheck = 1000, 50
)

// Destination is a receiver of an endpoint's webhooks that keeps failing, or
// is paused. A receiver that answers has no entry, and failures are forgotten 7 days
// after the last one, or when about 1000 other destinations of the endpoint
// failed since.
type Destination struct {
	Endpoint string `json:"endpoint"`
	// Origin is the scheme, host and port that the receiver's addresses share.
	Origin string `json:"origin"`
	// Failures counts webhooks given up in a row, since First.
	Failures int       `json:"failures"`
	First    time.Time `json:"first,omitzero"`
	// Paused: nothing is sent there; Reason and Since say why and from when.
	Paused bool      `json:"paused"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// OriginOf is the scheme, host and port of an http or https address, in lower
// case and with the port spelled out. ok is false for any other text, and for an
// address with a zone, which means something on one machine only.
func OriginOf(webhook string) (origin string, ok bool) {
	u, err := url.Parse(webhook)
	if err != nil || u.Hostname() == "" || strings.Contains(u.Host, "%") {
		return "", false
	}
	port, known := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	if !known {
		return "", false
	}
	if u.Port() != "" {
		port = ""
	}
	return u.Scheme + "://" + strings.ToLower(strings.TrimSuffix(u.Host, ":")) + port, true
}

// Destinations are those that keep failing or are paused.
type Destinations struct {
	table *agingTable[Destination]
	cache *cache[Destination]

	mu   sync.Mutex
	made map[string]int // by endpoint, since they were counted
}

func newDestinations(ctx context.Context, o *opener) *Destinations {
	t := openAging(ctx, o, streams.BucketDestinations, failuresAge, func(d Destination) bool { return !d.Paused })
	return &Destinations{table: t, cache: newAgingCache(t, o.log), made: map[string]int{}}
}

// destinationKey hides the origin, whose characters no key has.
func destinationKey(endpoint, origin string) string {
	key := make([]byte, 0, 128)
	sum := sha256.Sum256(append(key, origin...))
	return string(hex.AppendEncode(append(append(key, endpoint...), '.'), sum[:16]))
}

// Get says how a destination stands, from memory: the zero Destination if
// nothing is known against it. It may be as old as a heartbeat; Find is not.
func (d *Destinations) Get(ctx context.Context, endpoint, origin string) (Destination, error) {
	got, _, vouched := d.cache.get(destinationKey(endpoint, origin))
	if vouched {
		return got.value, nil // the zero value if it is not found
	}
	return d.Find(ctx, endpoint, origin)
}

// Find is Get as the bucket has it.
func (d *Destinations) Find(ctx context.Context, endpoint, origin string) (Destination, error) {
	got, err := d.table.read(ctx, destinationKey(endpoint, origin))
	if errors.Is(err, ErrNotFound) {
		return Destination{}, nil
	}
	return got.value, err
}

// List returns those of an endpoint by their origin, "" for all endpoints.
func (d *Destinations) List(ctx context.Context, endpoint string) ([]Destination, error) {
	entries, err := d.table.list(ctx, cmp.Or(endpoint, "*")+".*")
	if err != nil {
		return nil, err
	}
	all := valuesOf(d.table.valid(entries))
	slices.SortFunc(all, func(a, b Destination) int {
		return strings.Compare(a.Endpoint+" "+a.Origin, b.Endpoint+" "+b.Origin)
	})
	return all, nil
}

// Pause stops deliveries to the origin until Resume. An origin that is paused
// already keeps its reason.
func (d *Destinations) Pause(ctx context.Context, endpoint, origin, reason string, now time.Time) (Destination, error) {
	return d.change(ctx, endpoint, origin, func(x *Destination) {
		if !x.Paused {
			x.Paused, x.Reason, x.Since = true, reason, now
		}
	})
}

// FailurePolicy is how much a destination may fail before it is paused: both must
// be reached. Webhooks 0 means without end.
type FailurePolicy struct {
	// Webhooks given up in a row.
	Webhooks int
	// For is how long ago the first of them was given up.
	For time.Duration
}

// GaveUp counts a webhook given up for the reason, and pauses the destination
// once the policy says so.
func (d *Destinations) GaveUp(ctx context.Context, endpoint, origin string, p FailurePolicy, reason string, now time.Time) (Destination, error) {
	return d.change(ctx, endpoint, origin, func(x *Destination) {
		if x.Failures == 0 {
			x.First = now
		}
		x.Failures++
		if p.Webhooks > 0 && x.Failures >= p.Webhooks && now.Sub(x.First) >= p.For && !x.Paused {
			x.Paused, x.Since = true, now
			x.Reason = fmt.Sprintf("%d webhooks in a row were given up, the last one: %s", x.Failures, reason)
		}
	})
}

// Resume forgets what is held against the origin.
func (d *Destinations) Resume(ctx context.Context, endpoint, origin string) error {
	return d.table.clear(ctx, destinationKey(endpoint, origin))
}

// Drop forgets all destinations of an endpoint, those that are paused too.
func (d *Destinations) Drop(ctx context.Context, endpoint string) error {
	entries, err := d.table.list(ctx, endpoint+".*")
	for _, e := range entries {
		if err == nil {
			err = d.table.clear(ctx, e.key)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.made, endpoint)
	return err
}

// Answered forgets the failures of an origin that is not paused.
func (d *Destinations) Answered(ctx context.Context, endpoint, origin string) error {
	key := destinationKey(endpoint, origin)
	got, err := d.table.get(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case got.value.Paused:
		return nil
	}
	if err := d.table.remove(ctx, got); !errors.Is(err, ErrConflict) {
		return err
	}
	return nil // it failed again meanwhile
}

func (d *Destinations) change(ctx context.Context, endpoint, origin string, change func(*Destination)) (Destination, error) {
	isNew := false
	made, err := d.table.change(ctx, destinationKey(endpoint, origin), func(x Destination, found bool) (Destination, error) {
		isNew, x.Endpoint, x.Origin = !found, endpoint, origin
		change(&x)
		return x, nil
	})
	if err == nil && isNew {
		d.bound(ctx, endpoint)
	}
	return made.value, err
}

// bound counts what is new of an endpoint, and now and then removes the oldest
// that are not paused, so that callers who name webhooks cannot fill the
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

// surplus are the destinations beyond maxFailures that are not paused, and
// those that are forgotten: what failed last is kept.
func (d *Destinations) surplus(entries []entry[Destination]) []entry[Destination] {
	entries = slices.DeleteFunc(entries, func(e entry[Destination]) bool { return e.value.Paused })
	slices.SortFunc(entries, func(a, b entry[Destination]) int { return b.written.Compare(a.written) })
	keep := min(len(entries), maxFailures)
	for keep > 0 && d.table.isExpired(entries[keep-1]) {
		keep--
	}
	return entries[keep:]
}
