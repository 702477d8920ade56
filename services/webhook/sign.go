package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flightline/shared/job"
)

// messageID identifies the end of an attempt; it is the same for each delivery
// and each replay.
func messageID(j *job.Job) string {
	return "msg_" + string(j.ID) + "_" + strconv.Itoa(j.Attempt)
}

// sign sets the headers of Standard Webhooks, with one signature for each
// secret.
func sign(header http.Header, secrets []string, id string, at time.Time, body []byte) error {
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		key, err := standardwebhooks.NewWebhook(secret)
		if err != nil { // a secret that is no base64 is the key itself
			key, err = standardwebhooks.NewWebhookRaw([]byte(strings.TrimPrefix(secret, "whsec_")))
		}
		if err == nil {
			signatures[i], err = key.Sign(id, at, body)
		}
		if err != nil {
			return err
		}
	}
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}
