package api

import (
	"time"

	"flightline/shared/ratelimit"
)

// KeySpec is a key to make.
type KeySpec struct {
	// Name says, for people, what the key is for; it may be "".
	Name string `json:"name,omitempty"`
	// Scopes is what it may do, at least one of "submit:ENDPOINT",
	// "read:ENDPOINT", "admin:ENDPOINT", where ENDPOINT is an id or "*" for
	// all, "control" for managing endpoints, keys and pods, and "pods" for a look at those.
	Scopes []string `json:"scopes"`
	// Quota bounds what the key may ask for; zero means the defaults.
	Quota ratelimit.Quota `json:"quota,omitzero"`
}

// KeyChange changes a key. Fields of the quota that are missing stay, null means
// the default.
type KeyChange struct {
	Quota ratelimit.QuotaChange `json:"quota"`
}

// Key is an API key as the server stores it: hashed.
type Key struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Scopes is what it may do, each as KeySpec spells it.
	Scopes []string `json:"scopes"`
	// Last4 are the last characters of the key, for people to recognise it.
	Last4   string    `json:"last4"`
	Created time.Time `json:"createdAt"`
	// Quota is what the key has of its own, not the defaults.
	Quota ratelimit.Quota `json:"quota,omitzero"`
	// Plain is the key itself. Only the answer that makes it has it.
	Plain string `json:"key,omitempty"`
}
