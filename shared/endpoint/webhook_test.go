package endpoint

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestWebhookSecretsOverlap(t *testing.T) {
	now := time.Now()
	e := Endpoint{WebhookSecret: "a"}
	turned := e.WithNewSecret("b", now.Add(time.Hour))
	tests := map[string]struct {
		e    Endpoint
		at   time.Time
		want []string
	}{
		"never turned":      {e, now, []string{"a"}},
		"within":            {turned, now, []string{"b", "a"}},
		"at the end":        {turned, now.Add(time.Hour), []string{"b"}},
		"turned at once":    {e.WithNewSecret("b", now), now, []string{"b"}},
		"turned once again": {turned.WithNewSecret("c", now.Add(time.Hour)), now, []string{"c", "b"}},
	}
	for name, test := range tests {
		if got := test.e.WebhookSecrets(test.at); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	if a, b := NewWebhookSecret(), NewWebhookSecret(); a == b {
		t.Errorf("got the same secret twice")
	}
}

func TestWebhookRetriesHaveBounds(t *testing.T) {
	tests := map[string]struct {
		retries []time.Duration
		ok      bool
	}{
		"the contract's": {nil, true},
		"none":           {[]time.Duration{}, true},
		"the bounds":     {[]time.Duration{MinWebhookRetry, MaxWebhookRetry}, true},
		"too short":      {[]time.Duration{MinWebhookRetry - 1}, false},
		"too long":       {[]time.Duration{MaxWebhookRetry + 1}, false},
		"as many":        {slices.Repeat([]time.Duration{time.Second}, MaxWebhookRetries), true},
		"too many":       {slices.Repeat([]time.Duration{time.Second}, MaxWebhookRetries+1), false},
	}
	for name, test := range tests {
		_, err := Endpoint{ID: "ep", WebhookRetries: test.retries}.Complete()
		if (err == nil) != test.ok || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want ok %v", name, err, test.ok)
		}
	}
}
