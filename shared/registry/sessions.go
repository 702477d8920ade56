package registry

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

// session is an API key that a browser may use, sealed with what only its cookie holds:
// who reads the bucket reads no key.
type session struct {
	Sealed  []byte    `json:"sealed"`
	Created time.Time `json:"created"`
}

// Sessions are those of the console, by a name that is derived from their tokens. Each
// is gone 12 hours after it began (streams.SessionAge).
type Sessions struct {
	table *Table[session]
}

// OpenSessions binds to the bucket. It starts nothing.
func OpenSessions(ctx context.Context, js jetstream.JetStream) (*Sessions, error) {
	table, err := OpenTable[session](ctx, js, streams.BucketSessions)
	return &Sessions{table: table}, err
}

// sessionKeys are what a token stands for.
type sessionKeys struct {
	name string // in the bucket
	seal cipher.AEAD
}

func sessionKeysOf(token string) (sessionKeys, error) {
	const nameBytes, keyBytes = 16, 32
	name, err := hkdf.Key(sha256.New, []byte(token), nil, "flightline session name", nameBytes)
	if err != nil {
		return sessionKeys{}, fmt.Errorf("name a session: %w", err)
	}
	key, err := hkdf.Key(sha256.New, []byte(token), nil, "flightline session seal", keyBytes)
	if err != nil {
		return sessionKeys{}, fmt.Errorf("seal a session: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sessionKeys{}, fmt.Errorf("seal a session: %w", err)
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	return sessionKeys{name: hex.EncodeToString(name), seal: seal}, err
}

// Create begins a session of an API key and returns its token: 26 characters, 128 bits,
// which nothing but the answer holds. It returns bus.ErrUnavailable.
func (s *Sessions) Create(ctx context.Context, apiKey string) (token string, err error) {
	token = rand.Text()
	keys, err := sessionKeysOf(token)
	if err != nil {
		return "", err
	}
	sealed := keys.seal.Seal(nil, nil, []byte(apiKey), nil) //nolint:gosec // the AEAD makes its nonces itself
	_, err = s.table.Create(ctx, keys.name, session{Sealed: sealed, Created: time.Now().UTC()})
	return token, err
}

// Open returns the API key of a session, or ErrUnauthorized if the token is of none, and
// bus.ErrUnavailable.
func (s *Sessions) Open(ctx context.Context, token string) (apiKey string, err error) {
	keys, err := sessionKeysOf(token)
	if err != nil {
		return "", err
	}
	got, _, err := s.table.Get(ctx, keys.name)
	if errors.Is(err, ErrNotFound) {
		return "", ErrUnauthorized
	}
	if err != nil {
		return "", err
	}
	plain, err := keys.seal.Open(nil, nil, got.Sealed, nil)
	if err != nil {
		return "", ErrUnauthorized
	}
	return string(plain), nil
}

// End ends a session; that none exists is no error. It returns bus.ErrUnavailable.
func (s *Sessions) End(ctx context.Context, token string) error {
	keys, err := sessionKeysOf(token)
	if err != nil {
		return err
	}
	return s.table.Delete(ctx, keys.name)
}
