package web

import (
	"context"
	"errors"
	"hash/maphash"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/registry"
)

// Keys knows the API keys; *registry.Keys is one.
type Keys interface {
	// Check returns what a key may do, or registry.ErrUnauthorized.
	Check(ctx context.Context, plain string) (registry.Key, error)
	// Known reports whether a key is in memory, so that Check needs no other
	// server. It may have been revoked.
	Known(plain string) bool
}

// guard is what a request must show to pass.
type guard struct {
	keys Keys
	need registry.Permission // "": any key will do
	// any: on some endpoint is enough; the handler looks which.
	any bool
}

// allows reports whether the key opens a route of the endpoint.
func (g guard) allows(key registry.Key, endpoint string) bool {
	if g.need == "" {
		return true
	}
	if g.any {
		return key.AllowsSome(g.need)
	}
	return key.Allows(endpoint, g.need)
}

type (
	localGuard   struct{} // *guard, of the route
	localRevoked struct{} // *atomic.Bool, of a request that was held
)

// Auth lets requests pass whose key allows need, on the endpoint that the
// route calls :endpoint if it has one. The key comes in the Authorization
// header, as "Bearer KEY" or bare. All others get 401: the API does not tell a
// key without the permission from an unknown one. An address that shows too many
// unknown keys gets 429 for them. A request that is held (LongPoll) is answered 401, or
// its streamed answer is cut off, within two seconds after its key was revoked.
func Auth(keys Keys, need registry.Permission) fiber.Handler {
	return guard{keys: keys, need: need}.handler()
}

// AuthSome is Auth for a route of all endpoints: it lets requests pass whose key allows
// need on at least one. The handler answers with those that Caller allows.
func AuthSome(keys Keys, need registry.Permission) fiber.Handler {
	return guard{keys: keys, need: need, any: true}.handler()
}

// AuthAny lets requests pass with any key that is known. All others get 401.
func AuthAny(keys Keys) fiber.Handler { return guard{keys: keys}.handler() }

func (g guard) handler() fiber.Handler {
	return func(c *fiber.Ctx) error {
		if err := g.admit(c); err != nil {
			return err
		}
		c.Locals(localGuard{}, &g)
		err := c.Next()
		if revoked, held := c.Locals(localRevoked{}).(*atomic.Bool); held && revoked.Load() {
			return registry.ErrUnauthorized
		}
		return err
	}
}

// Allow is Auth for a handler whose need depends on the request. The request is
// not held on the strength of it.
func Allow(c *fiber.Ctx, keys Keys, need registry.Permission) error {
	return guard{keys: keys, need: need}.admit(c)
}

func (g guard) admit(c *fiber.Ctx) error {
	plain := Key(c)
	if plain == "" {
		return registry.ErrUnauthorized
	}
	if wait := Barred(c); wait > 0 && !g.keys.Known(plain) {
		return TooManyUnknown(c, wait)
	}
	key, err := g.keys.Check(c.UserContext(), plain)
	if errors.Is(err, registry.ErrUnauthorized) {
		Refused(c)
	}
	if err != nil {
		return err
	}
	if !g.allows(key, c.Params("endpoint")) {
		return registry.ErrUnauthorized
	}
	c.Locals(caller{}, &key)
	return nil
}

// caller is where the key of a request is kept.
type caller struct{}

// Caller is the key by which Allow let the request pass, nil before that.
func Caller(c *fiber.Ctx) *registry.Key {
	key, _ := c.Locals(caller{}).(*registry.Key)
	return key
}

// pass is the key by which a request is held. It shares no memory with it.
type pass struct {
	guard           *guard
	plain, endpoint string
	revoked         atomic.Bool
}

// passOf is the pass of a request that is about to be held, nil if its route
// asks for no key.
func passOf(c *fiber.Ctx) *pass {
	g, ok := c.Locals(localGuard{}).(*guard)
	if !ok {
		return nil
	}
	p := &pass{guard: g, plain: strings.Clone(Key(c)), endpoint: strings.Clone(c.Params("endpoint"))}
	c.Locals(localRevoked{}, &p.revoked)
	return p
}

// lost reports whether the key no longer opens the route. What cannot be asked
// for is not lost.
func (p *pass) lost(ctx context.Context) bool {
	if p == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookInterval)
	defer cancel()
	key, err := p.guard.keys.Check(ctx, p.plain)
	if errors.Is(err, registry.ErrUnauthorized) || err == nil && !p.guard.allows(key, p.endpoint) {
		p.revoked.Store(true)
		return true
	}
	return false
}

// Key is the API key, or the token, that the request came with, known or not; "" if it came
// with none. It shares the request's memory.
func Key(c *fiber.Ctx) string { return bearer(c.Get(fiber.HeaderAuthorization)) }

// bearer takes the key out of the header's value.
func bearer(value string) string {
	value = strings.TrimSpace(value)
	const scheme = "bearer "
	if len(value) >= len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
		value = strings.TrimSpace(value[len(scheme):])
	}
	return value
}

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
