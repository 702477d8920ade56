package queue

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"flightline/shared/bus"
	"flightline/streams"
)

const (
	// inlineMost is the largest payload that travels in the message itself.
	inlineMost = 256 << 10
	// partSize leaves room for headers below NATS's default max_payload of 1 MB.
	partSize = 896 << 10
)

// payloadRef names a payload that lies beside its message, in parts. A record
// refers to it only after all parts are stored, so a reader finds it whole.
type payloadRef struct {
	Subject string `json:"subject"`
	Parts   int    `json:"parts"`
	Size    int    `json:"size"`
	// Hash is the SHA-256 of the whole, in hex.
	Hash string `json:"hash"`
}

// storePayload stores data in parts until an hour after until, under a subject
// of its own: run keeps two runs apart, the token two writers of one run.
func (q *Queue) storePayload(ctx context.Context, at place, r *record, side streams.Side, data []byte, until time.Time) (*payloadRef, error) {
	run, token := r.Run, nuid.Next()
	if plantNoFence {
		run, token = 0, "shared"
	}
	subject := streams.PayloadSubject(at.partition, at.endpoint, r.ID, r.Attempt, run, side, token)
	ref, err := q.storeParts(ctx, at, subject, data, until)
	if err != nil {
		return nil, fmt.Errorf("store payload of job %s: %w", r.ID, err)
	}
	q.point(AfterPayload)
	return ref, nil
}

func (q *Queue) storeParts(ctx context.Context, at place, subject string, data []byte, until time.Time) (*payloadRef, error) {
	sum := sha256.Sum256(data)
	ref := &payloadRef{Subject: subject, Size: len(data), Hash: hex.EncodeToString(sum[:])}
	ttl := ttlHeader(q.Now(), until.Add(streams.Margin))
	var last uint64
	for start := 0; start < len(data); start += partSize {
		m := &nats.Msg{Subject: subject, Data: data[start:min(start+partSize, len(data))], Header: nats.Header{}}
		m.Header.Set(jetstream.MsgTTLHeader, ttl)
		var err error
		if plantNoFence {
			last, err = q.store(ctx, streams.Payloads(at.partition), m)
		} else {
			last, err = q.publish(ctx, streams.Payloads(at.partition), m, nuid.Next(), last)
		}
		if err != nil {
			return nil, err
		}
		ref.Parts++
	}
	return ref, nil
}

// loadPayload reads a payload and checks it. A replica may lack parts, for as
// long as it lags: that they are gone is what the leader says (errPayload).
func (q *Queue) loadPayload(ctx context.Context, at place, ref *payloadRef) ([]byte, error) {
	data, err := q.readParts(ctx, at, ref)
	if errors.Is(err, errPayload) {
		data, err = q.leaderParts(ctx, at, ref)
	}
	if errors.Is(err, errPayload) {
		return nil, fmt.Errorf("%w: %s", errPayload, ref.Subject)
	}
	return data, err
}

// leaderParts is readParts from the leader, part by part.
func (q *Queue) leaderParts(ctx context.Context, at place, ref *payloadRef) ([]byte, error) {
	parts := make([]*nats.Msg, 0, ref.Parts)
	for from := uint64(1); len(parts) < ref.Parts; {
		m, err := q.leaderNext(ctx, streams.Payloads(at.partition), ref.Subject, from)
		if errors.Is(err, errNoMessage) {
			return nil, errPayload
		}
		if err != nil {
			return nil, err
		}
		parts, from = append(parts, m.asBatch()), m.seq+1
	}
	return ref.join(parts)
}

// readParts reads the parts from any replica, one after the other: of the
// requests of a native worker each is answered once (docs/adr/0035).
func (q *Queue) readParts(ctx context.Context, at place, ref *payloadRef) ([]byte, error) {
	parts := make([]*nats.Msg, 0, ref.Parts)
	for from := uint64(1); len(parts) < ref.Parts; {
		m, err := untilAnswered(ctx, func() (*nats.Msg, error) {
			return q.directNext(ctx, streams.Payloads(at.partition), ref.Subject, from)
		})
		if errors.Is(err, errNoMessage) {
			return nil, errPayload
		}
		if err != nil {
			return nil, err
		}
		parts, from = append(parts, m), bus.Sequence(m)+1
	}
	return ref.join(parts)
}

// directNext reads the first message of subject from a sequence on, from any
// replica, or returns errNoMessage.
func (q *Queue) directNext(ctx context.Context, stream, subject string, from uint64) (*nats.Msg, error) {
	body, err := json.Marshal(map[string]any{"seq": from, "next_by_subj": subject})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", subject, err)
	}
	m, err := q.request(ctx, streams.DirectGet(stream), body)
	if err != nil {
		return nil, err
	}
	switch status := m.Header.Get("Status"); status {
	case "":
		return m, nil
	case "404":
		return nil, errNoMessage
	default:
		return nil, fmt.Errorf("%w: read %s: %s %s", ErrUnavailable, subject, status, m.Header.Get("Description"))
	}
}

// join is the payload, or errPayload.
func (ref *payloadRef) join(parts []*nats.Msg) ([]byte, error) {
	data := make([]byte, 0, ref.Size)
	for _, p := range parts {
		data = append(data, p.Data...)
	}
	sum := sha256.Sum256(data)
	if !plantNoFence && (len(parts) != ref.Parts || hex.EncodeToString(sum[:]) != ref.Hash) {
		return nil, errPayload
	}
	return data, nil
}

// batchGet reads up to most messages of subject from sequence from on, in one
// request.
func (q *Queue) batchGet(ctx context.Context, stream, subject string, from uint64, most int) ([]*nats.Msg, error) {
	got, err := bus.BatchGet(ctx, q.nc, streams.DirectGet(stream), bus.Batch{From: from, Filter: subject, Most: most})
	if errors.Is(err, bus.ErrNoAnswer) {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return got, err
}

// placeInput puts an input into r, inline or beside it.
func (q *Queue) placeInput(ctx context.Context, at place, r *record, input []byte) error {
	if len(input) <= inlineMost {
		r.input, r.inRef = input, nil
		return nil
	}
	ref, err := q.storePayload(ctx, at, r, streams.In, input, r.Expires)
	if err != nil {
		return err
	}
	r.input, r.inRef = nil, ref
	return nil
}

// carry stores the payload of ref once more so that it lives until r.Expires.
func (q *Queue) carry(ctx context.Context, at place, r *record, side streams.Side, ref *payloadRef) (*payloadRef, error) {
	if ref == nil {
		return nil, nil //nolint:nilnil // no payload beside the message is carried as none
	}
	data, err := q.loadPayload(ctx, at, ref)
	if err != nil {
		return nil, err
	}
	return q.storePayload(ctx, at, r, side, data, r.Expires)
}

// compact checks that v is JSON and leaves it as one line (runpod-compat §1.5).
func compact(v json.RawMessage) (json.RawMessage, error) {
	if len(v) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	b.Grow(len(v))
	if err := json.Compact(&b, v); err != nil {
		return nil, fmt.Errorf("job: output is not JSON: %w", err)
	}
	return b.Bytes(), nil
}
