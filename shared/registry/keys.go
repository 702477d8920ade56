package registry

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"flightline/shared/ratelimit"
	"flightline/streams"
)

const (
	keyPrefix = "fl_"
	// keyBytes make 40 characters of base64: 240 bits.
	keyBytes = 30
	// keyIDLength is how much of the hash names a key.
	keyIDLength = 32
	// minKey and maxKey bound a key that the caller chose.
	minKey, maxKey = 8, 512
	maxKeyName     = 191
	maxScopes      = 1000
)

// Key is what is known about an API key. The key itself is not.
type Key struct {
	// ID names the key without giving it away: 32 hex digits.
	ID     string  `json:"id"`
	Name   string  `json:"name"`
	Scopes []Scope `json:"scopes"`
	// Last4 are the last characters of the key, for people to recognise it.
	Last4   string    `json:"last4"`
	Created time.Time `json:"created"`
	// Hash is the SHA-256 of the key, in hex.
	Hash string `json:"hash"`
	// Quota bounds what the key may ask for.
	Quota ratelimit.Quota `json:"quota,omitzero"`
}

// Allows reports whether the key may do what needs need, on the endpoint; for
// Control the endpoint is ignored.
func (k Key) Allows(endpointID string, need Permission) bool {
	return slices.ContainsFunc(k.Scopes, func(s Scope) bool { return s.allows(endpointID, need) })
}

// AllowsSome reports whether the key may do what needs need on at least one endpoint.
func (k Key) AllowsSome(need Permission) bool {
	return slices.ContainsFunc(k.Scopes, func(s Scope) bool { return s.Endpoint != "" && s.allows(s.Endpoint, need) })
}

// KeySpec is what a key is made from.
type KeySpec struct {
	// Name is for people, at most 191 characters; it may be "".
	Name string
	// Scopes are 1 to 1000.
	Scopes []Scope
	// Quota bounds what the key may ask for; zero means the defaults.
	Quota ratelimit.Quota
}

func (s KeySpec) check() error {
	switch {
	case len(s.Scopes) == 0:
		return fmt.Errorf("%w: at least one scope is needed", ErrInvalid)
	case len(s.Scopes) > maxScopes:
		return fmt.Errorf("%w: scopes must be at most %d, got %d", ErrInvalid, maxScopes, len(s.Scopes))
	case utf8.RuneCountInString(s.Name) > maxKeyName:
		return fmt.Errorf("%w: name is longer than %d characters", ErrInvalid, maxKeyName)
	case strings.ContainsFunc(s.Name, unicode.IsControl):
		return fmt.Errorf("%w: name must hold no control characters", ErrInvalid)
	}
	if err := s.Quota.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// Keys are the API keys by the beginning of their hash.
type Keys struct {
	table *Table[Key]
	cache *cache[Key]
}

func newKeys(ctx context.Context, o *opener) *Keys {
	t := open[Key](ctx, o, streams.BucketKeys)
	return &Keys{table: t, cache: newCache(t, o.log)}
}

// Create makes a key, "fl_" and 40 random characters, and returns it in plain
// this once. It returns an ErrInvalid for a bad spec.
func (k *Keys) Create(ctx context.Context, spec KeySpec) (plain string, key Key, err error) {
	if err := spec.check(); err != nil {
		return "", Key{}, err
	}
	plain = newSecret(keyPrefix)
	key = newKey(plain, spec)
	revision, err := k.table.Create(ctx, key.ID, key)
	if err != nil {
		return "", Key{}, err
	}
	k.cache.put(entry[Key]{key: key.ID, value: key, revision: revision})
	return plain, key, nil
}

// Put makes a key of the caller's own choice, 8 to 512 bytes, or gives an
// existing one this name and these scopes. An existing quota stays unless spec
// has one.
func (k *Keys) Put(ctx context.Context, plain string, spec KeySpec) (Key, error) {
	if err := spec.check(); err != nil {
		return Key{}, err
	}
	if len(plain) < minKey || len(plain) > maxKey {
		return Key{}, fmt.Errorf("%w: an API key has %d to %d bytes", ErrInvalid, minKey, maxKey)
	}
	key := newKey(plain, spec)
	return k.cache.stored(k.table.change(ctx, key.ID, func(old Key, found bool) (Key, error) {
		if found {
			key.Created, key.Quota = old.Created, cmp.Or(spec.Quota, old.Quota)
		}
		return key, nil
	}))
}

// Known reports whether memory has a plain key.
func (k *Keys) Known(plain string) bool {
	_, found, _ := k.cache.get(hashOf(plain)[:keyIDLength])
	return found
}

// Check returns what a plain key may do, or ErrUnauthorized. A key that was unknown
// stays so for a second, or until the watch brings it.
func (k *Keys) Check(ctx context.Context, plain string) (Key, error) {
	if plain == "" || len(plain) > maxKey {
		return Key{}, ErrUnauthorized
	}
	hash := hashOf(plain)
	got, err := k.cache.find(ctx, hash[:keyIDLength])
	if errors.Is(err, ErrNotFound) {
		return Key{}, ErrUnauthorized
	} else if err != nil {
		return Key{}, err
	}
	if subtle.ConstantTimeCompare([]byte(got.value.Hash), []byte(hash)) != 1 {
		return Key{}, ErrUnauthorized
	}
	return got.value, nil
}

// List returns the keys, the oldest first.
func (k *Keys) List(ctx context.Context) ([]Key, error) {
	keys, err := k.table.List(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(keys, func(a, b Key) int { return a.Created.Compare(b.Created) })
	return keys, nil
}

// ChangeQuota applies the change to the quota of the key of this ID; it holds
// everywhere within MaxStaleness. It returns ErrNotFound if there is no such key, an
// ErrInvalid, and ErrConflict if others keep changing the key.
func (k *Keys) ChangeQuota(ctx context.Context, id string, change ratelimit.QuotaChange) (Key, error) {
	if !validKeyID(id) {
		return Key{}, ErrNotFound
	}
	return k.cache.stored(k.table.change(ctx, id, func(key Key, found bool) (Key, error) {
		if !found {
			return key, ErrNotFound
		}
		var err error
		if key.Quota, err = change.Apply(key.Quota); err != nil {
			return key, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return key, nil
	}))
}

// Revoke refuses the key of this ID from now on, everywhere within MaxStaleness. It
// returns ErrNotFound if none exists.
func (k *Keys) Revoke(ctx context.Context, id string) error {
	if !validKeyID(id) {
		return ErrNotFound
	}
	if _, err := k.table.get(ctx, id); err != nil {
		return err
	}
	return k.table.Delete(ctx, id)
}

func validKeyID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == keyIDLength/2
}

// newSecret makes up a key or a token: the prefix and 40 characters.
func newSecret(prefix string) string {
	random := make([]byte, keyBytes)
	_, _ = rand.Read(random) // never fails
	return prefix + base64.RawURLEncoding.EncodeToString(random)
}

func newKey(plain string, spec KeySpec) Key {
	hash := hashOf(plain)
	return Key{
		ID: hash[:keyIDLength], Name: spec.Name, Scopes: spec.Scopes,
		Last4: plain[len(plain)-4:], Created: time.Now().UTC(), Hash: hash, Quota: spec.Quota,
	}
}

func hashOf(plain string) string {
	sum := sha256.Sum256([]byte(plain))
	return hex.EncodeToString(sum[:])
}
