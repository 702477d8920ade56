package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flightline/shared/pod"
)

// ErrQuarantined means that no pod gets the GPU until its quarantine is over.
var ErrQuarantined = errors.New("registry: the GPU is quarantined")

// quarantineMemory is how long after its end a quarantine makes the next one longer.
const quarantineMemory = 24 * time.Hour

// Quarantine keeps pods off a GPU until its deadline. From then on the GPU is on
// probation: one pod at a time may claim it, and what becomes of that pod ends the
// quarantine or begins another one (docs/adr/0065). The zero value is that of a GPU that
// was never quarantined.
type Quarantine struct {
	// Machine is the id of the machine that had the GPU when it began.
	Machine string `json:"machine,omitempty"`
	// Reason is for people.
	Reason string `json:"reason,omitempty"`
	// By is the id of the API key that asked for it, "" if the autoscaler decided it.
	By string `json:"by,omitempty"`
	// Since and Until are server times.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Count is how often in a row the autoscaler decided it.
	Count int `json:"count,omitempty"`
	// Restored is when it ended, zero before. After it only Count matters.
	Restored time.Time `json:"restored,omitzero"`
}

// Exists reports whether the GPU is quarantined or on probation.
func (q Quarantine) Exists() bool { return !q.Since.IsZero() && q.Restored.IsZero() }

// Holds reports whether no pod may claim the GPU now.
func (q Quarantine) Holds(now time.Time) bool { return q.Exists() && now.Before(q.Until) }

// Probation reports whether one pod at a time may claim the GPU now.
func (q Quarantine) Probation(now time.Time) bool { return q.Exists() && !now.Before(q.Until) }

// again is how many quarantines in a row one is that begins now, decided by the
// autoscaler or asked for.
func (q Quarantine) again(now time.Time, asked bool) int {
	count := q.Count
	if !q.Restored.IsZero() && now.Sub(q.Restored) > quarantineMemory {
		count = 0
	}
	if !asked {
		count++
	}
	return count
}

// Quarantine begins a quarantine of the GPU at q.Since; its length follows from its
// count. A quarantine by request (q.By) replaces any other; the autoscaler's own leaves
// alone what still holds. It returns the quarantine that holds then, and whether it is q.
func (g *GPUs) Quarantine(ctx context.Context, uuid string, q Quarantine, length func(count int) time.Duration) (held Quarantine, begun bool, err error) {
	if !pod.ValidGPU(uuid) || q.Since.IsZero() {
		return q, false, fmt.Errorf("%w: quarantine of GPU %q", ErrInvalid, uuid)
	}
	err = g.change(ctx, uuid, func(c GPUClaims) (GPUClaims, error) {
		if held, begun = c.Quarantine, false; q.By == "" && held.Holds(q.Since) {
			return c, errUnchanged
		}
		next := q
		next.Count = c.Quarantine.again(q.Since, q.By != "")
		next.Until = q.Since.Add(length(next.Count))
		c.Quarantine, held, begun = next, next, true
		return c, nil
	})
	return held, begun, err
}

// Restore ends the quarantine of the GPU that began at since, as of now; another one
// is left alone. The next one within a day counts as its successor, unless this one is
// forgotten: it was wrong, or somebody asks for it.
func (g *GPUs) Restore(ctx context.Context, uuid string, since, now time.Time, forget bool) error {
	return g.change(ctx, uuid, func(c GPUClaims) (GPUClaims, error) {
		if !c.Quarantine.Exists() || !c.Quarantine.Since.Equal(since) {
			return c, errUnchanged
		}
		c.Quarantine.Restored = now.UTC()
		if forget {
			c.Quarantine.Count = 0
		}
		return c, nil
	})
}
