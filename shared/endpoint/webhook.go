package endpoint

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"
)

// Bounds of WebhookRetries.
const (
	MaxWebhookRetries = 20
	MinWebhookRetry   = time.Second
	MaxWebhookRetry   = 24 * time.Hour
)

func (e Endpoint) checkWebhookRetries() error {
	if len(e.WebhookRetries) > MaxWebhookRetries {
		return &FieldError{"webhookRetriesMs", fmt.Sprintf("must be at most %d pauses, got %d", MaxWebhookRetries, len(e.WebhookRetries))}
	}
	for _, d := range e.WebhookRetries {
		if d < MinWebhookRetry || d > MaxWebhookRetry {
			return &FieldError{"webhookRetriesMs", fmt.Sprintf("must be between %d and %d milliseconds each, got %d", MinWebhookRetry.Milliseconds(), MaxWebhookRetry.Milliseconds(), d.Milliseconds())}
		}
	}
	return nil
}

// Webhook secrets are of this form (Standard Webhooks): the prefix, and base64.
const webhookSecretPrefix = "whsec_"

// webhookSecretBytes is how long the key within is.
const webhookSecretBytes = 32

// NewWebhookSecret makes a secret up.
func NewWebhookSecret() string {
	key := make([]byte, webhookSecretBytes)
	_, _ = rand.Read(key) // it never fails (crypto/rand)
	return webhookSecretPrefix + base64.StdEncoding.EncodeToString(key)
}

// WithNewSecret returns e with another webhook secret; the present one signs
// beside it until then. A time in the past ends it at once.
func (e Endpoint) WithNewSecret(secret string, until time.Time) Endpoint {
	e.WebhookSecretBefore, e.WebhookSecretBeforeUntil = e.WebhookSecret, until
	e.WebhookSecret = secret
	return e
}

// WebhookSecrets are those that sign a webhook now, the newest first.
func (e Endpoint) WebhookSecrets(now time.Time) []string {
	if e.WebhookSecretBefore != "" && now.Before(e.WebhookSecretBeforeUntil) {
		return []string{e.WebhookSecret, e.WebhookSecretBefore}
	}
	return []string{e.WebhookSecret}
}
