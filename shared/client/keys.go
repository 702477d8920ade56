package client

import (
	"context"
	"net/http"
	"time"

	"flightline/shared/limit"
)

// Keys manages API keys. Each call needs a key with the control permission.
type Keys struct{ c *Client }

// Keys returns the calls that manage API keys.
func (c *Client) Keys() Keys { return Keys{c} }

// Key is an API key as the server remembers it: hashed.
type Key struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Scopes is what it may do, each as KeySpec spells it.
	Scopes []string `json:"scopes"`
	// Last4 are the last characters of the key, for people to recognise it.
	Last4   string    `json:"last4"`
	Created time.Time `json:"createdAt"`
	// Quota is what the key has of its own, not the defaults.
	Quota limit.Quota `json:"quota,omitzero"`
	// Plain is the key itself. Only Create returns it, once.
	Plain string `json:"key,omitempty"`
}

// KeySpec is a key to make.
type KeySpec struct {
	// Name tells people what the key is for; it may be "".
	Name string `json:"name,omitempty"`
	// Scopes is what it may do, at least one of "submit:ENDPOINT",
	// "read:ENDPOINT", "admin:ENDPOINT", where ENDPOINT is an id or "*" for
	// all, and "control" for managing endpoints and keys.
	Scopes []string `json:"scopes"`
	// Quota bounds what the key may ask for; zero means the defaults.
	Quota limit.Quota `json:"quota,omitzero"`
}

// Create makes a key. Key.Plain of the answer is shown never again.
func (k Keys) Create(ctx context.Context, spec KeySpec) (*Key, error) {
	var made Key
	if err := k.c.do(ctx, call{method: http.MethodPost, path: v1("keys"), body: spec}, &made); err != nil {
		return nil, err
	}
	return &made, nil
}

// ChangeQuota changes the fields of the key's quota that the change names.
func (k Keys) ChangeQuota(ctx context.Context, id string, change limit.QuotaChange) (*Key, error) {
	var changed Key
	body := map[string]limit.QuotaChange{"quota": change}
	if err := k.c.do(ctx, call{method: http.MethodPatch, path: v1("keys", id), body: body}, &changed); err != nil {
		return nil, err
	}
	return &changed, nil
}

// List returns all keys, without what they read.
func (k Keys) List(ctx context.Context) ([]Key, error) {
	var list []Key
	err := k.c.do(ctx, call{method: http.MethodGet, path: v1("keys")}, &list)
	return list, err
}

// Revoke makes the key worthless at once.
func (k Keys) Revoke(ctx context.Context, id string) error {
	return k.c.do(ctx, call{method: http.MethodDelete, path: v1("keys", id)}, nil)
}
