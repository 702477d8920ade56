package client

import (
	"context"

	"flightline/shared/api"
	"flightline/shared/ratelimit"
)

// Keys manages API keys. Each call needs a key with the control permission.
type Keys struct{ c *Client }

// Keys returns the calls that manage API keys.
func (c *Client) Keys() Keys { return Keys{c} }

// Key is an API key as the server remembers it: hashed.
type Key = api.Key

// KeySpec is a key to make.
type KeySpec = api.KeySpec

// Create makes a key. Key.Plain of the answer is shown never again.
func (k Keys) Create(ctx context.Context, spec KeySpec) (*Key, error) {
	return one[Key](ctx, k.c, post(v1("keys"), spec))
}

// ChangeQuota changes the fields of the key's quota that the change names.
func (k Keys) ChangeQuota(ctx context.Context, id string, change ratelimit.QuotaChange) (*Key, error) {
	return one[Key](ctx, k.c, patch(v1("keys", id), api.KeyChange{Quota: change}))
}

// List returns all keys, without what they read.
func (k Keys) List(ctx context.Context) ([]Key, error) {
	return value[[]Key](ctx, k.c, get(v1("keys"), nil))
}

// Self is the key that the client asks with, without what it reads. Any key may ask.
func (k Keys) Self(ctx context.Context) (*Key, error) {
	return one[Key](ctx, k.c, get(v1("key"), nil))
}

// Revoke revokes the key at once.
func (k Keys) Revoke(ctx context.Context, id string) error {
	return k.c.do(ctx, remove(v1("keys", id)), nil)
}
