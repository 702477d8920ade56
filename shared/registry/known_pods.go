package registry

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"flightline/shared/pod"
)

// KnownPods are all pods. Callers share them, and must not change them.
type KnownPods struct {
	All []pod.Pod            // by endpoint, then by id
	Of  map[string][]pod.Pod // the same by endpoint; those of "" work for none
}

// Find returns the endpoint's pod of this id, the zero value for none.
func (k KnownPods) Find(endpointID, id string) pod.Pod {
	i, found := slices.BinarySearchFunc(k.All, id, func(p pod.Pod, id string) int {
		return cmp.Or(strings.Compare(p.Endpoint, endpointID), strings.Compare(p.ID, id))
	})
	if !found {
		return pod.Pod{}
	}
	return k.All[i]
}

// lastKnownPods is what Known last made of the caches.
type lastKnownPods struct {
	mu          sync.Mutex
	driven, own uint64    // the caches' versions before they were read
	until       time.Time // when the first of the pods expires; the zero time for never
	pods        *KnownPods
}

// Known returns all pods from memory if it can; then they may lack what was written a
// heartbeat ago. Without a change it costs nothing: records of workers that have ended are
// kept for a day, so that there may be many (docs/adr/0079-known-pods.md).
func (p *Pods) Known(ctx context.Context) (KnownPods, error) {
	driven, vouched := p.driven.cache.version()
	own, ownVouched := p.own.cache.version()
	if !vouched || !ownVouched {
		return p.readAll(ctx)
	}
	last := p.last
	last.mu.Lock()
	defer last.mu.Unlock()
	expired := !last.until.IsZero() && !time.Now().Before(last.until)
	if last.pods == nil || last.driven != driven || last.own != own || expired {
		d, _ := p.driven.cache.all(nil)
		o, _ := p.own.cache.all(nil)
		known := knownPods(d, o)
		last.driven, last.own, last.pods = driven, own, &known
		last.until = p.driven.table.firstExpiry(d, p.own.table.firstExpiry(o, time.Time{}))
	}
	return *last.pods, nil
}

// readAll is Known without what it made before.
func (p *Pods) readAll(ctx context.Context) (KnownPods, error) {
	driven, err := p.driven.all(ctx)
	if err != nil {
		return KnownPods{}, err
	}
	own, err := p.own.all(ctx)
	if err != nil {
		return KnownPods{}, err
	}
	return knownPods(driven, own), nil
}

// List is Known, by id alone, and the caller's.
func (p *Pods) List(ctx context.Context) ([]pod.Pod, error) {
	known, err := p.Known(ctx)
	pods := slices.Clone(known.All)
	slices.SortFunc(pods, func(a, b pod.Pod) int { return strings.Compare(a.ID, b.ID) })
	return pods, err
}

func knownPods(driven, own []entry[pod.Pod]) KnownPods {
	merged := mergePods(driven, own)
	slices.SortFunc(merged, func(a, b *pod.Pod) int {
		return cmp.Or(strings.Compare(a.Endpoint, b.Endpoint), strings.Compare(a.ID, b.ID))
	})
	known := KnownPods{All: make([]pod.Pod, 0, len(merged)), Of: map[string][]pod.Pod{}}
	for _, p := range merged {
		known.All = append(known.All, *p)
	}
	for from, all := 0, known.All; from < len(all); {
		id := all[from].Endpoint
		to := from + 1
		for to < len(all) && all[to].Endpoint == id {
			to++
		}
		known.Of[id] = all[from:to:to]
		from = to
	}
	return known
}

// mergePods returns the driven pods, and those of their owners that no driven
// one hides.
func mergePods(driven, own []entry[pod.Pod]) []*pod.Pod {
	pods, hidden, newer := make([]*pod.Pod, 0, len(driven)+len(own)), map[string]bool{}, map[string]bool{}
	for _, e := range driven {
		hidden[e.key] = !isOwners(e.value)
	}
	for _, e := range own {
		if p := ownersView(e); !hidden[p.ID] {
			pods, newer[e.key] = append(pods, &p), true
		}
	}
	for i := range driven {
		p := &driven[i].value
		if !isOwners(*p) || !newer[workerKey(p.Endpoint, driven[i].key)] {
			pods = append(pods, p)
		}
	}
	return pods
}
