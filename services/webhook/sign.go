package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"flightline/shared/job"
)

// The headers of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// idOf names a completion; it is the same in each of its attempts and replays.
func idOf(j *job.Job) string {
	return "msg_" + string(j.ID) + "_" + strconv.Itoa(j.Attempt)
}

// signer computes signatures. What a secret costs to prepare is kept for the
// next one. The zero value is ready.
type signer struct {
	mu   sync.Mutex
	keys map[string]*sync.Pool // of *keyed, by secret
}

// keysMost is how many secrets a signer remembers.
const keysMost = 1024

// keyed is a secret's.
type keyed struct {
	mac hash.Hash
	buf []byte
}

// sign sets the headers by which a receiver knows who sent the body, and when.
// There is one signature for each secret.
func (s *signer) sign(header http.Header, secrets []string, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signatures[i] = s.signature(secret, id, stamp, body)
	}
	values := []string{id, stamp, strings.Join(signatures, " ")}
	header[headerID], header[headerTimestamp], header[headerSignature] = values[0:1:1], values[1:2:2], values[2:3:3]
}

func (s *signer) signature(secret, id, stamp string, body []byte) string {
	pool := s.pool(secret)
	k := pool.Get().(*keyed) //nolint:forcetypeassert // nothing else is in it
	defer pool.Put(k)
	k.mac.Reset()
	k.buf = append(append(append(append(k.buf[:0], id...), '.'), stamp...), '.')
	k.mac.Write(k.buf)
	k.mac.Write(body)
	sum := k.mac.Sum(k.buf[:0])
	k.buf = base64.StdEncoding.AppendEncode(append(sum, "v1,"...), sum)
	return string(k.buf[len(sum):])
}

func (s *signer) pool(secret string) *sync.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.keys[secret]
	if p == nil {
		if s.keys == nil || len(s.keys) >= keysMost {
			s.keys = map[string]*sync.Pool{}
		}
		p = &sync.Pool{New: func() any { return &keyed{mac: hmac.New(sha256.New, keyOf(secret))} }}
		s.keys[secret] = p
	}
	return p
}

// keyOf is what the text of a secret stands for.
func keyOf(secret string) []byte {
	text := strings.TrimPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return []byte(text)
	}
	return key
}
