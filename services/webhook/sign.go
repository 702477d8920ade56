package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
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

// sign sets the headers by which a receiver knows who sent the body, and when.
// There is one signature for each secret.
func sign(header http.Header, secrets []string, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, 0, len(secrets))
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, keyOf(secret))
		mac.Write([]byte(id + "." + stamp + "."))
		mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	header.Set(headerID, id)
	header.Set(headerTimestamp, stamp)
	header.Set(headerSignature, strings.Join(signatures, " "))
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
