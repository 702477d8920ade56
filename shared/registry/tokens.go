package registry

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/streams"
)

// tokenPrefix begins a worker's token; 40 random characters follow.
const tokenPrefix = "fw_"

// Token lets one worker in over HTTP, on one endpoint. What is kept is
// its hash, and what that worker was asked to do.
type Token struct {
	Endpoint string `json:"endpoint"`
	// Worker is an id like that of Worker.ID.
	Worker string `json:"worker"`
	// Hash is the SHA-256 of the token, in hex.
	Hash string `json:"hash"`
	// Last4 are the last characters of the token, for people to recognise it.
	Last4   string    `json:"last4"`
	Created time.Time `json:"created"`
	// Draining means that the worker gets no more jobs.
	Draining bool `json:"draining,omitempty"`
	// Refreshed is when the worker last said that it restarts itself, in server
	// time; zero if it never did.
	Refreshed time.Time `json:"refreshed,omitzero"`
	// Disconnected is when the worker was seen to have left a poll before its answer,
	// in server time; zero if it has polled since.
	Disconnected time.Time `json:"disconnected,omitzero"`
	// Expires means that the token expires unless Renew keeps it.
	Expires bool `json:"expires,omitempty"`
	// Written is the server's time of the last change, as Find returns it.
	Written time.Time `json:"-"`
}

// Tokens are the tokens by endpoint and worker; a worker has one at a time.
type Tokens struct {
	table *agingTable[Token]
	cache *cache[Token]
}

func newTokens(ctx context.Context, o *opener) *Tokens {
	t := openAging(ctx, o, streams.BucketTokens, podTTL, func(k Token) bool { return k.Expires })
	return &Tokens{table: t, cache: newAgingCache(t, o.log)}
}

// Issue makes a token for a worker, "fw_" and 40 random characters, and returns
// it in plain this once. An earlier token of the worker is revoked, and
// it drains no longer. It returns an ErrInvalid for ids that cannot be. The token
// is good until it is revoked: it may be in a configuration file.
func (t *Tokens) Issue(ctx context.Context, endpointID, worker string) (plain string, made Token, err error) {
	plain, made, _, err = t.issue(ctx, endpointID, worker, false)
	return plain, made, err
}

// IssueForFleet is Issue for a worker of a fleet: the token expires unless Renew
// keeps it. undo gives the worker back the token that it had, if it has this one still.
func (t *Tokens) IssueForFleet(ctx context.Context, endpointID, worker string) (plain string, undo func(context.Context) error, err error) {
	plain, made, before, err := t.issue(ctx, endpointID, worker, true)
	undo = func(ctx context.Context) error {
		_, err := t.change(ctx, endpointID, worker, func(k *Token) (changed bool) {
			if k.Hash != made.Hash || before.Hash == "" {
				return false
			}
			before.Draining = before.Draining || k.Draining
			*k = before
			return true
		})
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	}
	return plain, undo, err
}

// issue also returns the token that the new one replaces, the zero value for none.
func (t *Tokens) issue(ctx context.Context, endpointID, worker string, expires bool) (plain string, made, before Token, err error) {
	if !validWorker(endpointID, worker) {
		return "", Token{}, Token{}, fmt.Errorf("%w: the id of a worker must match [A-Za-z0-9_-]{1,128}", ErrInvalid)
	}
	plain = newSecret(tokenPrefix)
	made = Token{
		Endpoint: endpointID, Worker: worker, Hash: hashOf(plain), Last4: plain[len(plain)-4:], Created: time.Now().UTC(), Expires: expires,
	}
	_, err = t.cache.stored(t.table.change(ctx, workerKey(endpointID, worker), func(old Token, _ bool) (Token, error) {
		before = old
		return made, nil
	}))
	if err != nil {
		return "", Token{}, Token{}, err
	}
	return plain, made, before, nil
}

func validWorker(endpointID, worker string) bool {
	return endpoint.ValidID(endpointID) && pod.ValidID(worker)
}

// Check returns the worker's token if plain is it, or ErrUnauthorized. That a worker
// has none holds for a second, or until the watch brings one.
func (t *Tokens) Check(ctx context.Context, plain, endpointID, worker string) (Token, error) {
	if !strings.HasPrefix(plain, tokenPrefix) || len(plain) > maxKey || !validWorker(endpointID, worker) {
		return Token{}, ErrUnauthorized
	}
	got, err := t.cache.find(ctx, workerKey(endpointID, worker))
	if errors.Is(err, ErrNotFound) {
		return Token{}, ErrUnauthorized
	}
	if err != nil {
		return Token{}, err
	}
	if subtle.ConstantTimeCompare([]byte(got.value.Hash), []byte(hashOf(plain))) != 1 {
		return Token{}, ErrUnauthorized
	}
	return got.value, nil
}

// Known reports whether memory has a token of the worker.
func (t *Tokens) Known(endpointID, worker string) bool {
	_, found, _ := t.cache.get(workerKey(endpointID, worker))
	return found
}

// Find returns what is known about a worker's token, from memory if it can, or
// ErrNotFound.
func (t *Tokens) Find(ctx context.Context, endpointID, worker string) (Token, error) {
	if !validWorker(endpointID, worker) {
		return Token{}, ErrNotFound
	}
	got, err := t.cache.valid(ctx, workerKey(endpointID, worker))
	got.value.Written = got.written
	return got.value, err
}

// Drain says that the worker gets no more jobs, until a new token is issued
// for it. It returns ErrNotFound.
func (t *Tokens) Drain(ctx context.Context, endpointID, worker string) (Token, error) {
	return t.change(ctx, endpointID, worker, func(k *Token) bool { k.Draining = true; return true })
}

// Refresh says that the worker restarts itself at the time at. It returns
// ErrNotFound.
func (t *Tokens) Refresh(ctx context.Context, endpointID, worker string, at time.Time) error {
	_, err := t.change(ctx, endpointID, worker, func(k *Token) bool { k.Refreshed = at; return true })
	return err
}

// Disconnect notes that the worker left a poll at the time at, which it began with the
// token of this hash. A note that is about as old stays. It returns ErrNotFound.
func (t *Tokens) Disconnect(ctx context.Context, endpointID, worker, hash string, at time.Time) error {
	_, err := t.change(ctx, endpointID, worker, func(k *Token) (changed bool) {
		if k.Hash != hash || !k.Disconnected.IsZero() && at.Sub(k.Disconnected).Abs() < time.Second {
			return false
		}
		k.Disconnected = at
		return true
	})
	return err
}

// Reconnect removes this note of Disconnect, and no other one. It returns ErrNotFound.
func (t *Tokens) Reconnect(ctx context.Context, endpointID, worker string, noted time.Time) error {
	_, err := t.change(ctx, endpointID, worker, func(k *Token) (changed bool) {
		if !k.Disconnected.Equal(noted) {
			return false
		}
		k.Disconnected = time.Time{}
		return true
	})
	return err
}

// change writes what do makes of the token, unless it reports that nothing changed.
func (t *Tokens) change(ctx context.Context, endpointID, worker string, do func(*Token) (changed bool)) (Token, error) {
	if !validWorker(endpointID, worker) {
		return Token{}, ErrNotFound
	}
	key := workerKey(endpointID, worker)
	changed, err := t.cache.stored(t.table.change(ctx, key, func(k Token, found bool) (Token, error) {
		switch {
		case !found:
			return k, ErrNotFound
		case !do(&k):
			return k, errUnchanged
		}
		return k, nil
	}))
	return changed, ignoreUnchanged(err)
}

// Revoke refuses the worker's token from now on, everywhere within MaxStaleness. It
// returns ErrNotFound if none exists.
func (t *Tokens) Revoke(ctx context.Context, endpointID, worker string) error {
	if !validWorker(endpointID, worker) {
		return ErrNotFound
	}
	key := workerKey(endpointID, worker)
	if _, err := t.table.read(ctx, key); err != nil {
		return err
	}
	return t.table.clear(ctx, key)
}

// List returns the endpoint's tokens by worker.
func (t *Tokens) List(ctx context.Context, endpointID string) ([]Token, error) {
	if !endpoint.ValidID(endpointID) {
		return nil, endpoint.ErrNotFound
	}
	entries, err := t.table.list(ctx, endpointID+".*")
	if err != nil {
		return nil, err
	}
	tokens := valuesOf(t.table.valid(entries))
	slices.SortFunc(tokens, func(a, b Token) int { return strings.Compare(a.Worker, b.Worker) })
	return tokens, nil
}

// Drop revokes all tokens of an endpoint.
func (t *Tokens) Drop(ctx context.Context, endpointID string) error {
	tokens, err := t.List(ctx, endpointID)
	if err != nil {
		return err
	}
	for _, k := range tokens {
		if err := t.table.clear(ctx, workerKey(k.Endpoint, k.Worker)); err != nil {
			return err
		}
	}
	return nil
}

// Renew keeps those tokens from expiring whose worker isAlive reports. It is to be
// called as Pods.Renew is.
func (t *Tokens) Renew(ctx context.Context, isAlive func(endpointID, worker string) bool) error {
	entries, err := t.cache.list(ctx, jetstream.AllKeys, nil)
	if err != nil {
		return err
	}
	return t.table.renew(ctx, slices.DeleteFunc(entries, func(e entry[Token]) bool {
		return !isAlive(e.value.Endpoint, e.value.Worker)
	}))
}
