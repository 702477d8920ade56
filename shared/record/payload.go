package record

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"flightline/shared/bus"
	"flightline/shared/mutation"
	"flightline/streams"
)

// PartSize is the largest part of a payload, in bytes. It leaves room for
// headers below NATS's default max_payload of 1 MB.
const PartSize = 896 << 10

// partTimeout is how long a part of a payload may take to be stored, on average: a disk
// that is shared with others may take seconds for a megabyte.
const partTimeout = 2 * time.Second

// ExtraTime is how much longer than bus.CallTimeout a call may take that stores or copies
// a payload of so many bytes: 2 s for each part.
func ExtraTime(size int) time.Duration {
	return time.Duration((size+PartSize-1)/PartSize) * partTimeout
}

// ErrPayloadGone means that parts of a payload are missing or do not match its
// hash. A retry does not help.
var ErrPayloadGone = errors.New("the payload is gone or incomplete")

// PayloadRef names a payload that is stored in parts, beside its message. A
// record refers to it only after all parts are stored, so that a reader finds it
// whole.
type PayloadRef struct {
	Subject string `json:"subject"`
	Parts   int    `json:"parts"`
	// Size is in bytes.
	Size int `json:"size"`
	// Hash is the SHA-256 of the whole, in hex.
	Hash string `json:"hash"`
}

// StorePayload stores data in parts under a subject of its own
// (streams.PayloadSubject, streams.KeptSubject) until streams.Margin after until.
// A part that takes longer than bus.CallTimeout ends it. It returns bus.ErrUnavailable.
func StorePayload(ctx context.Context, c *bus.Client, subject string, data []byte, until time.Time) (*PayloadRef, error) {
	p, err := streams.PayloadPartition(subject)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	ref := &PayloadRef{Subject: subject, Size: len(data), Hash: hex.EncodeToString(sum[:])}
	ttl := bus.MessageTTL(c.Now(), until.Add(streams.Margin))
	for start := 0; start < len(data); start += PartSize {
		m := &nats.Msg{Subject: subject, Data: data[start:min(start+PartSize, len(data))], Header: nats.Header{}}
		m.Header.Set(jetstream.MsgTTLHeader, ttl)
		within, cancel := bus.Bounded(ctx)
		err = c.Append(within, streams.Payloads(p), m, nuid.Next())
		cancel()
		if err != nil {
			return nil, err
		}
		ref.Parts++
	}
	return ref, nil
}

// LoadPayload reads a payload and checks its hash. A replica may lack parts for
// as long as it lags: only the leader decides that they are gone. It returns
// ErrPayloadGone and bus.ErrUnavailable.
func LoadPayload(ctx context.Context, c *bus.Client, ref *PayloadRef) ([]byte, error) {
	p, err := streams.PayloadPartition(ref.Subject)
	if err != nil {
		return nil, err
	}
	data, err := ref.read(func(from uint64) (*nats.Msg, error) {
		return c.DirectNext(ctx, streams.Payloads(p), ref.Subject, from)
	})
	if errors.Is(err, ErrPayloadGone) {
		data, err = ref.read(func(from uint64) (*nats.Msg, error) {
			m, err := c.LeaderNext(ctx, streams.Payloads(p), ref.Subject, from)
			if err != nil {
				return nil, err
			}
			return m.Msg(), nil
		})
	}
	if errors.Is(err, ErrPayloadGone) {
		return nil, fmt.Errorf("%w: %s", ErrPayloadGone, ref.Subject)
	}
	return data, err
}

// read reads the parts, one after the other: of the requests of a native worker
// each is answered once (docs/adr/0035). next returns the first part from a
// sequence on. A part is there twice if the answer to its writer was lost.
func (ref *PayloadRef) read(next func(from uint64) (*nats.Msg, error)) ([]byte, error) {
	data, tokens := make([]byte, 0, ref.Size), map[string]bool{}
	for from, parts := uint64(1), 0; parts < ref.Parts; {
		m, err := next(from)
		if errors.Is(err, bus.ErrNoMessage) {
			return nil, ErrPayloadGone
		}
		if err != nil {
			return nil, err
		}
		from = bus.Sequence(m) + 1
		if token := m.Header.Get(bus.TokenHeader); !tokens[token] {
			data, tokens[token] = append(data, m.Data...), true
			parts++
		}
	}
	sum := sha256.Sum256(data)
	if !mutation.NoFence && hex.EncodeToString(sum[:]) != ref.Hash {
		return nil, ErrPayloadGone
	}
	return data, nil
}
