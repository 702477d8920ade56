package web

import (
	"hash/maphash"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
)

const (
	// refusedBurst and refusedRate are how many requests with an unknown key or
	// token an address may send at once, and in a second on average.
	refusedBurst, refusedRate = 100, 20
	refusedInterval           = time.Second / refusedRate
	// refusedSlots bounds what is remembered. Addresses that share a slot share its
	// budget; a key that is known needs none.
	refusedSlots = 4096
)

// refusals counts the unknown keys that each client address shows. The zero value
// is not ready; newRefusals.
type refusals struct {
	seed  maphash.Seed
	began time.Time
	// spent is when the budget of a slot is full again, in ns since began.
	spent [refusedSlots]atomic.Int64
}

func newRefusals() *refusals { return &refusals{seed: maphash.MakeSeed(), began: time.Now()} }

// slot is that of a client.
func (r *refusals) slot(client netip.Addr) *atomic.Int64 {
	return &r.spent[maphash.Comparable(r.seed, client)%refusedSlots]
}

// wait is how long until the address may show another unknown key.
func (r *refusals) wait(client netip.Addr, now time.Time) time.Duration {
	full := time.Duration(r.slot(client).Load())
	return max(0, full-now.Sub(r.began)-(refusedBurst-1)*refusedInterval)
}

// add counts an unknown key.
func (r *refusals) add(client netip.Addr, now time.Time) {
	slot, since := r.slot(client), now.Sub(r.began)
	for {
		old := slot.Load()
		if slot.CompareAndSwap(old, int64(max(time.Duration(old), since)+refusedInterval)) {
			return
		}
	}
}

// Barred is how long the client's address may show no unknown key or token, because
// it showed too many: 100 at once, 20 a second. 0 means that it may. The address is
// that of the connection, so clients behind one proxy share it. A key that is known
// without asking another server is checked all the same.
func Barred(c *fiber.Ctx) time.Duration {
	state := stateOf(c)
	if state == nil {
		return 0
	}
	return state.refused.wait(clientOf(c.Context().RemoteAddr()), time.Now())
}

// TooManyUnknown is the error for a client that is barred for that long.
func TooManyUnknown(c *fiber.Ctx, wait time.Duration) error {
	c.Set(fiber.HeaderRetryAfter, strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	return Errorf(TooManyRequests, "this address sent too many unknown keys; %d a second are looked up", refusedRate)
}

// Refused counts an unknown key or token of the client's address.
func Refused(c *fiber.Ctx) {
	if state := stateOf(c); state != nil {
		state.refused.add(clientOf(c.Context().RemoteAddr()), time.Now())
	}
}
