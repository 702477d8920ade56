package host

import (
	"fmt"
	"sync"
	"time"

	"flightline/shared/pod"
)

// cardXIDs are the XID errors for which the card itself needs a reset or a repair, by
// NVIDIA's catalog (docs.nvidia.com/deploy/xid-errors, the immediate action of each). All
// others are errors of an application (13, 31, 45, 94: restart it), are to be ignored (43,
// 63, 92), or say nothing of one card. 109 needs a reset by the catalog, and is an error of
// the application for NVIDIA's device plugin; it is left out here, for a card that needs a
// reset fails its next workers.
var cardXIDs = map[uint64]string{
	46:  "GPU stopped processing",
	48:  "double bit ECC error",
	62:  "internal micro-controller halt",
	64:  "GPU memory remapping failure",
	74:  "NVLink error",
	79:  "GPU has fallen off the bus",
	95:  "uncontained memory error",
	110: "security fault error",
	119: "GSP RPC timeout",
	120: "GSP error",
	140: "ECC unrecovered error",
	143: "GPU initialization error",
	158: "GPU fatal timeout",
}

// xidTime is how long a card counts as unhealthy after such an error: long enough for a
// quarantine to begin. Whether it works again is for the worker to show that tries it then.
const xidTime = time.Minute

// xidRecord remembers the last error of each card that was the card's.
type xidRecord struct {
	mu   sync.Mutex
	last map[string]xidError // by UUID
}

type xidError struct {
	code uint64
	at   time.Time // local clock
}

// note remembers an error of a card, and reports whether the card is unhealthy for it.
func (r *xidRecord) note(uuid string, code uint64, now time.Time) bool {
	if _, ofCard := cardXIDs[code]; !ofCard {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]xidError{}
	}
	r.last[uuid] = xidError{code, now}
	return true
}

// apply says of the cards which had such an error lately. What a card itself says comes first.
func (r *xidRecord) apply(cards []pod.GPU, now time.Time) []pod.GPU {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, c := range cards {
		if e, had := r.last[c.UUID]; had && c.Health == "" && now.Sub(e.at) < xidTime {
			cards[i].Health = fmt.Sprintf("XID %d: %s", e.code, cardXIDs[e.code])
		}
	}
	return cards
}
